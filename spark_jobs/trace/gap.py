"""The gap of a run: drops between the seal and the run's first drop that were never run.

A run moves the seal to its end, and no update can be added below the seal. So a run that leaves such drops out fixes
the answers of reads as of their times for good. It does so only on request.
"""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace.frontiers import SeqRange, SourceFrontiers

SHOWN_RANGES = 5
"""The most ranges of drops that a refusal's sentence names; its facts list all of them."""


class SealGap(TidemarkError):
    """A run would move the seal past drops that were never run. Facts: `source`, `drops` (labels of the first and last
    drop of each range), `count` (of drops), `seal_us`."""

    code = "seal_gap"


def gap_before(source: Source, frontiers: SourceFrontiers, first: int) -> list[SeqRange]:
    """The half-open ranges, sorted, of the drops before `first` that never landed and end beyond the seal. They are
    counted from the source's start, also before its first run."""
    schedule = source.drops
    sealed = frontiers.seal_us != 0
    lowest = max(schedule.number_at(frontiers.seal_us), 0) if sealed else 0
    gap: list[SeqRange] = []
    for lo, hi in [*frontiers.landed, (first, first)]:
        if lowest < min(lo, first):
            gap.append((lowest, min(lo, first)))
        lowest = max(lowest, hi)
    return gap


def gap_refusal(source: Source, frontiers: SourceFrontiers, drops: range) -> SealGap | None:
    """The refusal of a run of `drops` that would move the seal past drops that were never run, with the possible next
    steps. None if there are no such drops."""
    gap = gap_before(source, frontiers, drops.start) if drops else []
    if not gap:
        return None
    label, count = source.drops.label, sum(hi - lo for lo, hi in gap)
    ends = [(label(lo), label(hi - 1)) for lo, hi in gap]
    listed = ", ".join(first if first == last else f"{first} to {last}" for first, last in ends[:SHOWN_RANGES])
    more = ", …" if len(ends) > SHOWN_RANGES else ""
    start = label(0)
    return SealGap(
        expected=f"no drop of {source.name} before {label(drops.start)} that was never run and ends beyond the seal"
        f" ({_seal(frontiers)})",
        found=f"{count}: {listed}{more}",
        consequence="nothing was run",
        next_step=f"run them first: {commands(source, gap)}; or pass them with --pass-gap (in Airflow: the parameter"
        " pass_gap), which can't be taken back: reads as of their times then answer for good with rows known"
        " before them, and their rows become visible only after the seal of this run, when they are run later."
        f" If there are no files from that long ago, it may be `start: {start}` in the source file that is wrong",
        source=source.name,
        drops=[list(pair) for pair in ends],
        count=count,
        seal_us=frontiers.seal_us,
    )


def commands(source: Source, gap: list[SeqRange]) -> str:
    """The commands that run the drops of the gap, in their order; at most SHOWN_RANGES of them."""
    label = source.drops.label
    runs = [f"`tidemark run {source.name} --from {label(lo)} --to {label(hi - 1)}`" for lo, hi in gap[:SHOWN_RANGES]]
    return ", then ".join([*runs, "so on"] if len(gap) > SHOWN_RANGES else runs)


def _seal(frontiers: SourceFrontiers) -> str:
    return f"{instant(frontiers.seal_us):%Y-%m-%dT%H:%M:%SZ}" if frontiers.seal_us else "no run has sealed anything"
