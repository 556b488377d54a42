"""Rows of results lead to their reasons where they are rows of one published table, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.portal.names import decode_key
from spark_jobs.portal.sql.row_links import row_links
from spark_jobs.sources import Source, find_source
from tests.jobs.harness import SOURCE

NAMES = ["meter", "window_start", "n"]
ROW = ["a~b/ü", "2024-01-01 23:30:00", "2"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "meters.yml").write_text(SOURCE)
    return {"meters": find_source(str(folder), "meters")}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM silver.hourly",
        "select h.* from spark_catalog.`silver`.HOURLY h where n > 1 order by n limit 10",
        "SELECT meter, h.window_start, n + 1 AS n FROM silver.hourly AS h",
        "SELECT *, count(*) OVER () AS of_all FROM silver.hourly",
        "SELECT * EXCEPT (total) FROM silver.hourly",
    ],
)
def test_rows_of_a_published_table_lead_to_their_reasons(statement: str, sources: dict[str, Source]) -> None:
    (link,) = row_links(statement, sources, NAMES, [ROW])
    assert link is not None
    folder, _, name = link.rpartition("/")
    assert folder == "why/meters/hourly"
    assert decode_key(name.removesuffix(".html")) == ROW[:2]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT upper(meter) AS meter, window_start, n FROM silver.hourly",
        "SELECT max(meter) AS meter, max(window_start) AS window_start, count(*) AS n FROM silver.hourly",
        "SELECT meter, window_start, n FROM silver.hourly GROUP BY ALL",
        "SELECT h.* FROM silver.hourly h JOIN silver.shifts s ON h.meter = s.meter",
        "SELECT h.meter, h.window_start, h.n FROM silver.hourly h, silver.shifts",
        "SELECT * FROM silver.hourly UNION ALL SELECT * FROM silver.hourly",
        "WITH hourly AS (SELECT 1) SELECT meter, window_start, n FROM hourly",
        "WITH x AS (SELECT 1) SELECT meter, window_start, n FROM silver.hourly",
        "SELECT * FROM (SELECT * FROM silver.hourly)",
        "SELECT last.meter, last.window_start, n FROM silver.hourly",
        "SELECT * FROM silver.hourly LATERAL VIEW explode(array(1)) t AS meter",
        "SELECT * FROM silver.other",
        "SELECT * FROM dev__silver.hourly",
        "SELECT * FROM silver.hourly_as_of(TIMESTAMP '2024-01-01')",
        "SELECT * FROM silver.hourly VERSION AS OF 1",
        "SHOW TABLES IN silver",
        "SELECT (",
    ],
)
def test_other_rows_lead_nowhere(statement: str, sources: dict[str, Source]) -> None:
    assert row_links(statement, sources, NAMES, [ROW]) == []


def test_a_key_with_a_null_or_a_missing_column_leads_nowhere(sources: dict[str, Source]) -> None:
    assert row_links("SELECT * FROM silver.hourly", sources, NAMES, [[None, *ROW[1:]]]) == [None]
    assert row_links("SELECT n FROM silver.hourly", sources, ["n"], [["2"]]) == []
    # two columns of one name, of which one was computed
    twice = "SELECT *, lower(meter) AS METER FROM silver.hourly"
    assert row_links(twice, sources, [*NAMES, "METER"], [[*ROW, "a"]]) == []


def test_a_state_is_found_by_the_name_of_its_entity(sources: dict[str, Source], tmp_path: Path) -> None:
    names = [sources["meters"].entity, "total"]
    assert row_links("SELECT * FROM gold.meters", sources, names, [["a", "3"]]) == ["why/meters/meters/a.html"]
