"""What a stage tells of lineage: Airflow's own provider asks the operator; no value and no secret is in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.jobs.lineage import dataset_name, stage_lineage
from spark_jobs.model import STAGES
from spark_jobs.server.airflow_parts import airflow_environment
from spark_jobs.server.lake import lineage_conf
from spark_jobs.sources import find_source
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "dags"


@pytest.fixture
def told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Per stage what the provider extracts from its operator."""
    extractors = pytest.importorskip("airflow.providers.openlineage.extractors.manager", reason="make setup-lineage")
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(FOLDER))
    note_shown(settings.home, "flights", ShownMarts(7, "p", {"airport_delays": 3}))
    import _factory

    dag = _factory.source_dag(find_source(settings.sources, "flights"))
    manager, run = extractors.ExtractorManager(), SimpleNamespace(run_id="r")
    states = __import__("airflow.utils.state", fromlist=["TaskInstanceState"]).TaskInstanceState
    yield {stage: manager.extract_metadata(run, dag.get_task(stage), states.SUCCESS, None) for stage in STAGES}
    for module in ("_factory", "_tasks"):
        sys.modules.pop(module, None)


def names(datasets: list[Any], root: str) -> list[str]:
    """The datasets by their places below a folder."""
    assert all(each.namespace == "file" for each in datasets)
    return [each.name.removeprefix(f"{root}/") for each in datasets]


def test_stages_form_one_chain_from_files_to_marts(told: dict[str, Any], settings: Settings) -> None:
    lake = str(settings.lake)
    assert names(told["land"].inputs, str(settings.landing)) == ["flights"]
    assert names(told["land"].outputs, lake)[0] == "bronze.db/flights_chunks"
    assert names(told["seal"].inputs, lake) == ["bronze.db/flights_chunks"]
    assert names(told["window"].inputs, lake) == names(told["seal"].outputs, lake) == ["trace.db/flights_updates"]
    windows = names(told["window"].outputs, lake)
    assert windows[-1] == "silver.db/late_history" and len(windows) > 2
    assert set(names(told["publish"].inputs, lake)) == {*windows[:-1], "gold.db/state_history"}
    (mart,) = told["publish"].outputs
    assert names([mart], lake) == ["marts_staging.db/airport_delays"]
    assert mart.facets["symlinks"].identifiers[0].name == "marts.airport_delays"


def test_columns_are_told_with_their_comments(told: dict[str, Any]) -> None:
    fields = told["seal"].outputs[0].facets["schema"].fields
    assert {"row_id", "diff", "time"} <= {field.name for field in fields}
    assert all(field.description and field.type for field in fields)


def test_a_landing_tells_how_many_rows_came(settings: Settings) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="make setup-lineage")
    source = find_source(settings.sources, "flights")
    first = stage_lineage(settings, source, "land", {"rows": 842, "files": 1}).outputs[0]
    facet = first.outputFacets["outputStatistics"]
    assert (facet.rowCount, facet.fileCount) == (842, 1)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/srv/lake/a b'ü", ("file", "/srv/lake/a b'ü")),
        ("s3a://bucket/lake/x", ("s3://bucket", "lake/x")),
        ("s3://key:secret@bucket/lake/", ("s3://bucket", "lake")),
        ("/", ("file", "/")),
    ],
)
def test_a_dataset_is_named_by_its_place_without_a_password(place: str, name: tuple[str, str]) -> None:
    assert dataset_name(place) == name


def test_nothing_is_told_unless_it_is_configured(settings: Settings, tmp_path: Path) -> None:
    assert not [name for name in airflow_environment(settings) if "OPENLINEAGE" in name]
    wanted = settings.model_copy(update={"lineage": tmp_path / "openlineage.yml"})
    environment = airflow_environment(wanted)
    assert environment["AIRFLOW__OPENLINEAGE__CONFIG_PATH"] == str(tmp_path / "openlineage.yml")
    assert json.dumps(environment).count("TIDEMARK_LINEAGE") >= 1


def test_what_spark_tells_goes_without_statements_and_can_be_left_out(settings: Settings, tmp_path: Path) -> None:
    assert not [name for name in lineage_conf(settings) if name]
    wanted = settings.model_copy(update={"lineage": tmp_path / "openlineage.yml"})
    conf = lineage_conf(wanted)
    assert conf["spark.openlineage.facets.sql.disabled"] == "true"
    # every client can read Spark's configuration
    assert not [value for value in conf.values() if "openlineage.yml" in value]
    without = wanted.model_copy(update={"spark_conf": {"spark.extraListeners": "", "spark.other": "x"}})
    assert lineage_conf(without) == conf | {"spark.extraListeners": ""}
