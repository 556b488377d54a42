"""The examples on a lake server: their marts as dbt and Spark build and test them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_jobs.projects.examples import examples
from tests.installations import TIDEMARK, Installation

pytestmark = [pytest.mark.server, pytest.mark.turns]


def test_marts_of_all_examples_are_built_and_their_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    for example in examples().values():
        shutil.copytree(example.folder / "dbt", tmp_path / "dbt", dirs_exist_ok=True)
    installation = Installation(tmp_path / "home", sources=tmp_path / "sources", dbt=tmp_path / "dbt")
    for name in examples():
        written = installation.json("init", str(tmp_path / "sources"), "--example", name)
        assert Path(written["landed"][0]).is_relative_to(installation.settings.landing_folder)
    with installation.serving("--no-airflow"):
        for example in examples().values():
            drops = ["--from", example.drops[0], "--to", example.drops[-1]]
            # one drop after the other: only then are there hours to restate
            each = ["--each"] if example.name == "sensors" else []
            done = installation.run(str(TIDEMARK), "run", example.source, *drops, *each, "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            for mart in sorted(path.stem for path in (example.folder / "dbt" / "models").glob("*.sql")):
                [counted] = installation.sql(f"SELECT count(*) AS n FROM marts.{mart}")
                assert counted["n"] > 0
        [phone] = installation.sql("SELECT clicks, exit FROM marts.visits_of_people WHERE visitor = 'phone'")
        assert phone == {"clicks": 4, "exit": "/pay"}
        restated = installation.sql("SELECT sensor, hours_restated FROM marts.sensor_days WHERE hours_restated > 0")
        assert restated == [{"sensor": "cellar", "hours_restated": 7}]
        shops = installation.sql("SELECT CAST(max(booked_so_far) AS STRING) AS most FROM marts.shop_revenue")
        assert shops == [{"most": "2881.94"}]
