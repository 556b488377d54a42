"""DAGs in a team's own folder are read by Airflow beside ours, and start after the sources that they follow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.server.airflow_parts import airflow_environment

PLUGINS = Path(__file__).parents[1] / "examples" / "plugins"
PROGRAM = """
import json
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag
bundles = {bundle.name: str(bundle.path) for bundle in DagBundlesManager().get_all_dag_bundles()}
bag = DagBag(bundles["plugins"])
conditions = {name: str(dag.timetable.asset_condition) for name, dag in bag.dags.items()}
print("\\n" + json.dumps({"bundles": sorted(bundles), "dags": conditions, "errors": bag.import_errors}))
"""


@pytest.mark.parametrize("has_dags", [True, False])
def test_the_folder_is_a_bundle_of_airflows(has_dags: bool, settings: Settings, tmp_path: Path) -> None:
    plugins = PLUGINS if has_dags else tmp_path
    environment = airflow_environment(settings.model_copy(update={"plugins": plugins}))
    if not has_dags:
        assert "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST" not in environment
        return
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["bundles"] == ["dags-folder", "plugins"]
    assert said["errors"] == {}
    assert list(said["dags"]) == ["after_meters"]
    assert "tidemark://published/meters" in said["dags"]["after_meters"]
