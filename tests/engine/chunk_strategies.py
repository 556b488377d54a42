"""Small random chunks: few entities, timelines and times, so that ties, overlaps and sparse components are common."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from spark_jobs.engine.chunks import Row, StoreConfig

ENTITIES = ("pump", "valve")
TIMELINES = ("seen", "sent")
COMPONENTS = ("flow", "heat")

times = st.integers(-3, 9)
timeline_sets = st.sampled_from([("seen",), ("sent",), TIMELINES, ()])


@dataclass(frozen=True)
class Spec:
    """A chunk to insert."""

    id: str
    entity: str
    rows: tuple[Row, ...]


@st.composite
def row_lists(draw: st.DrawFn, row_ids: list[int], timelines: tuple[str, ...], one_datatype: bool = True) -> list[Row]:
    """Rows with these ids, all on these timelines."""
    types = {name: draw(st.sampled_from(["int64", "any"])) for name in COMPONENTS}
    rows = []
    for row_id in row_ids:
        data = draw(st.dictionaries(st.sampled_from(COMPONENTS), st.sampled_from([None, 1, 2]), max_size=2))
        if not one_datatype:
            types = {name: draw(st.sampled_from(["int64", "any"])) for name in COMPONENTS}
        at = {timeline: draw(times) for timeline in timelines}
        rows.append(Row(row_id, at, data, types, draw(st.integers(1, 3))))
    return rows


@st.composite
def chunk_specs(draw: st.DrawFn, max_chunks: int = 8) -> list[Spec]:
    """Well-formed chunks whose row ids are unique over all of them and come in any order."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=max_chunks))
    ids = draw(st.permutations(range(sum(sizes))))
    specs = []
    for number, size in enumerate(sizes):
        mine, ids = sorted(ids[:size]), ids[size:]
        rows = draw(row_lists(mine, draw(timeline_sets)))
        specs.append(Spec(f"c{number}", draw(st.sampled_from(ENTITIES)), tuple(rows)))
    return specs


@st.composite
def store_configs(draw: st.DrawFn) -> StoreConfig:
    """Limits around the sizes of the chunks, often off."""
    limits = st.sampled_from([0, 1, 2, 3, 5, 8, 100])
    return StoreConfig(
        max_bytes=draw(limits),
        max_rows=draw(limits),
        max_rows_if_unsorted=draw(limits),
        recheck_merged=draw(st.booleans()),
    )
