"""Every invariant of every gate is caught by the expectation that names it, and by no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from expectations import GATES, Invariant, suite
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates import GateFailed, build_data_docs, data_docs_index, run_gate

pytestmark = pytest.mark.slow

EVERY_INVARIANT = [(gate, invariant) for gate, invariants in GATES.items() for invariant in invariants]
Failures = Callable[[str, dict[str, int | None]], list[str]]
NAMES = [f"{gate}:{invariant.measure}" for gate, invariant in EVERY_INVARIANT]


@pytest.fixture(scope="module")
def quality(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    yield Settings(home=tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def failures() -> Failures:
    """The measures whose expectation fails for a row, without a project on disk."""
    import great_expectations as gx
    import pandas as pd

    asset = gx.get_context(mode="ephemeral").data_sources.add_pandas("measures").add_dataframe_asset("row")
    whole = asset.add_batch_definition_whole_dataframe("row")

    def validate(gate: str, row: dict[str, int | None]) -> list[str]:
        result = whole.get_batch({"dataframe": pd.DataFrame([row])}).validate(suite(gate, GATES[gate]))
        broken = [each.expectation_config for each in result.results if not each.success]
        assert None not in broken
        return [config.meta["measure"] for config in broken if config is not None]

    return validate


def sound(gate: str) -> dict[str, int | None]:
    """Measures of a stage without a fault."""
    row: dict[str, int | None] = {}
    for invariant in GATES[gate]:
        row |= dict.fromkeys(invariant.measures, 0 if invariant.bound == "none" else 1_356_998_400_000_000)
    return row


def broken(gate: str, invariant: Invariant) -> dict[str, int | None]:
    """The same with one fault, a tick or a row wide, in what `invariant` alone forbids."""
    row = sound(gate)
    if invariant.bound == "none":
        return row | {invariant.measure: 1}
    shared = {m for other in GATES[gate] if other is not invariant for m in other.measures}
    lower = invariant.measure if invariant.measure not in shared else str(invariant.other)
    step = 1 if lower == invariant.measure else -1
    return row | {lower: (row[lower] or 0) + step}


def test_the_gates_are_those_of_the_flow() -> None:
    assert list(GATES) == ["bronze", "trace", "silver", "gold"]


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_opens_for_a_sound_stage(gate: str, quality: Settings) -> None:
    verdicts = run_gate(gate, sound(gate), settings=quality, source="flights", run_id="sound")
    assert [v.name for v in verdicts] == [i.measure for i in GATES[gate]]
    assert all(v.verdict == "passed" and v.gate == gate for v in verdicts)


@pytest.mark.parametrize(("gate", "invariant"), EVERY_INVARIANT, ids=NAMES)
def test_a_fault_is_caught_by_the_expectation_that_names_it(
    gate: str, invariant: Invariant, failures: Failures
) -> None:
    assert failures(gate, broken(gate, invariant)) == [invariant.measure]


@pytest.mark.parametrize("gate", GATES)
def test_a_refusal_says_what_is_guaranteed_and_who_acts(gate: str, quality: Settings) -> None:
    invariant = GATES[gate][-1]
    with pytest.raises(GateFailed) as refusal:
        run_gate(gate, broken(gate, invariant), settings=quality, source="flights", run_id="broken")
    assert [failed["name"] for failed in refusal.value.failed] == [invariant.measure]
    assert invariant.guarantee in str(refusal.value)
    assert invariant.on_failure in str(refusal.value)


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_that_could_not_measure_does_not_open(gate: str, quality: Settings) -> None:
    with pytest.raises(GateFailed) as refusal:
        run_gate(gate, {}, settings=quality, source="flights", run_id="blind")
    assert [failed["name"] for failed in refusal.value.failed] == [i.measure for i in GATES[gate]]
    assert {"not measured"} <= {failed["observed"] for failed in refusal.value.failed}


def test_one_null_measure_fails_alone(quality: Settings) -> None:
    with pytest.raises(GateFailed) as refusal:
        run_gate("gold", sound("gold") | {"repeated_entities": None}, settings=quality, source="flights", run_id="null")
    assert [failed["name"] for failed in refusal.value.failed] == ["repeated_entities"]


def test_a_refusal_names_gate_source_run_and_shows_three_of_at_most_twenty_rows(quality: Settings) -> None:
    asked: list[list[tuple[str, ...]]] = []

    def find(broken: Sequence[tuple[str, ...]]) -> dict[str, list[dict[str, int]]]:
        asked.append(list(broken))
        return {"repeated_entities": [{"entity": n} for n in range(30)]}

    measures = sound("gold") | {"repeated_entities": 30}
    with pytest.raises(GateFailed) as refusal:
        run_gate("gold", measures, settings=quality, source="weather", run_id="r:7", find_examples=find)
    error = refusal.value
    assert (error.code, error.gate, error.source, error.run_id) == ("gate_failed", "gold", "weather", "r:7")
    assert asked == [[("repeated_entities",)]]
    assert [row["entity"] for row in error.failed[0]["sample"]] == list(range(20))
    assert "e.g. entity=2" in str(error)
    assert "entity=3" not in str(error)
    assert "and 27 more rows" in str(error)


def test_data_docs_show_a_failed_run_with_its_guarantee(settings: Settings) -> None:
    with pytest.raises(GateFailed):
        run_gate("gold", sound("gold") | {"repeated_entities": 1}, settings=settings, source="flights", run_id="a:b+c")
    pages = list(data_docs_index(settings).parent.rglob("validations/**/*.html"))
    assert len(pages) == 1
    assert "Every entity has one current state." in pages[0].read_text()
    assert pages[0].relative_to(data_docs_index(settings).parent).as_posix() in data_docs_index(settings).read_text()


def test_a_page_that_cannot_be_written_is_written_by_the_next_build(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    run_gate("gold", sound("gold"), settings=settings, source="flights", run_id="r")
    obstacle = data_docs_index(settings).parent / "validations"
    obstacle.write_text("no folder")
    with pytest.raises(OSError, match=str(obstacle)):
        build_data_docs(settings)
    assert "Traceback" not in caplog.text
    with pytest.raises(GateFailed):
        run_gate("gold", sound("gold") | {"repeated_entities": 1}, settings=settings, source="flights", run_id="s")
    obstacle.unlink()
    assert build_data_docs(settings) == 2
    assert len(list(obstacle.rglob("*.html"))) == 2


def test_nothing_is_written_outside_the_data_directory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(elsewhere))
    run_gate("gold", sound("gold"), settings=settings, source="flights", run_id="r")
    assert list(elsewhere.rglob("*")) == []


def test_an_unknown_gate_is_refused(settings: Settings) -> None:
    with pytest.raises(ParameterError, match="one of the gates bronze, trace, silver, gold"):
        run_gate("platinum", {}, settings=settings, source="flights", run_id="r")


def test_every_invariant_says_what_holds_and_who_acts() -> None:
    for gate, invariant in EVERY_INVARIANT:
        assert invariant.guarantee.endswith("."), (gate, invariant.measure)
        assert len(invariant.on_failure) > 40, (gate, invariant.measure)
    assert len(set(NAMES)) == len(NAMES)


def test_naming_the_gates_does_not_import_great_expectations() -> None:
    import subprocess
    import sys

    program = "import expectations, spark_jobs.gates, sys; sys.exit('great_expectations' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False).returncode == 0
