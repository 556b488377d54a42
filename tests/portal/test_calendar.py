"""How drops stand in the calendar: by what is published now and by the last run over each; and what people let pass."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.request import Request
from spark_jobs.model import STAGES
from spark_jobs.portal.overview import SourceFacts, source_page
from spark_jobs.portal.pages import Portal
from tests.jobs.harness import DAY, SOURCE, START, Reading, Session, run_one, write_lines, write_source
from tests.support.file_session import FileSession

CHECKS = """
checks:
  load_low: {kind: between, column: load, max: 100}
  meter_known: {kind: in, column: meter, values: [a, b], treatment: warn}
"""
BECAUSE = "a new sensor <told by the operator>"
NIGHT = 24 * 60


@pytest.fixture(scope="module")
def home(spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("home")
    settings = spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"})
    return write_source(settings, SOURCE + CHECKS)


def land(home: Settings, drop: int, load: int, meter: str = "a") -> None:
    write_lines(home, drop, [Reading(drop, drop * NIGHT + 10, meter, load).line()])


def run(session: Session, home: Settings, drop: int, run_id: str, *, fails: bool = False, **options: object) -> None:
    """All stages of a run of one drop."""
    lo = START + drop * DAY
    for stage in STAGES:
        request = Request(pass_gap=True, **options)  # type: ignore[arg-type]
        given: dict[str, Any] = {"source": "meters", "lo": lo, "hi": lo + DAY, "run_id": run_id}
        if fails:
            with pytest.raises(GateFailed):
                run_one(session, stage, **given, settings=home, request=request)
            return
        run_one(session, stage, **given, settings=home, request=request)


def facts(home: Settings) -> SourceFacts:
    portal = Portal(home, is_live=True)
    return portal.facts(portal.sources()["meters"])


def stands(home: Settings, drop: int) -> tuple[str, str, str | None]:
    """A drop's cell in the calendar: the verdict, its label and the run that it leads to."""
    day = START + timedelta(days=drop)
    portal = Portal(home, is_live=True)
    months = source_page(portal.lake, facts(home)).months
    (cell,) = [cell for month in months for cell in month.days if cell.label.startswith(f"{day:%Y-%m-%d}:")]
    return cell.verdict, cell.label, cell.run_id


@pytest.mark.turns
def test_the_calendar_follows_what_is_published_and_the_last_run_over_each_drop(
    file_lake: FileSession, home: Settings
) -> None:
    land(home, 0, 1)
    run(file_lake, home, 0, "clean")
    assert stands(home, 0)[0] == "ok"

    with pytest.raises(ParameterError):
        run(file_lake, home, 0, "mistyped", only_file="meters/2024-01-01/nothing.ndjson")
    assert stands(home, 0)[::2] == ("ok", "clean"), "what was refused changed nothing"
    (words,) = [each.words for each in facts(home).concerns if "the last run" in each.words]
    assert "refused (parameter): nothing was changed" in words
    last_run = facts(home).last_run
    assert last_run is not None
    assert last_run.state == "refused"
    nothing = Portal(home, is_live=True).page("runs/meters/nothing-new.html")
    assert "Nothing is recorded of a run of this name" in nothing

    land(home, 1, 101)
    run(file_lake, home, 1, "failing", fails=True)
    verdict, said, run_id = stands(home, 1)
    assert (verdict, run_id) == ("failed", "failing") and "the last run over it failed" in said
    run(file_lake, home, 1, "let-pass", overrides={"load_low": BECAUSE})
    verdict, said, run_id = stands(home, 1)
    assert (verdict, run_id) == ("overridden", "let-pass") and "let pass: load_low" in said
    assert stands(home, 0)[0] == "ok", "the others are as they were"

    land(home, 2, 102)
    run(file_lake, home, 2, "broken", fails=True)
    land(home, 2, 2)
    run(file_lake, home, 2, "mended")
    assert stands(home, 2)[::2] == ("ok", "mended")

    land(home, 3, 3, meter="unknown")
    run(file_lake, home, 3, "warning")
    verdict, said, _ = stands(home, 3)
    assert verdict == "warned" and "warned of by meter_known" in said

    land(home, 2, 103)
    run(file_lake, home, 2, "broken-again", fails=True)
    assert stands(home, 2)[::2] == ("failed", "broken-again"), "what landed anew is not published"

    _shows_what_was_let_pass(home)
    land(home, 2, 2)
    land(home, 1, 4)
    run(file_lake, home, 2, "mended-again")
    run(file_lake, home, 1, "corrected")
    assert stands(home, 1)[::2] == ("ok", "corrected")
    assert facts(home).overrides() == [], "nothing counts any more of what was let pass"
    assert BECAUSE.partition("<")[0] not in Portal(home, is_live=True).page("sources/meters.html")


def _shows_what_was_let_pass(home: Settings) -> None:
    (override,) = facts(home).overrides()
    assert (override.name, override.because, override.run_id) == ("load_low", BECAUSE, "let-pass")
    assert (override.seq_nos, override.labels) == ((1,), "2024-01-02")
    target = home.home / "dbt" / "target"
    target.mkdir(parents=True)
    reads = {"depends_on": {"nodes": ["source.tidemark.silver.hourly"]}, "raw_code": "select 1"}
    model = {"resource_type": "model", "name": "loads", "columns": {}, "config": {}} | reads
    (target / "manifest.json").write_text(json.dumps({"nodes": {"model.tidemark.loads": model}}))
    portal = Portal(home, is_live=True)
    for page in ("sources/meters.html", "marts/loads.html"):
        told = portal.page(page)
        assert re.search(r"load_low.*2024-01-02.*a new sensor &lt;told by the operator&gt;.*let-pass", told, re.DOTALL)
    assert "load_low" in portal.page("marts.html")
    first = facts(home).drop_states.publications[0][1]
    assert facts(home).overrides(first) == [], "a mart that shows an earlier publication does not include the drop"
