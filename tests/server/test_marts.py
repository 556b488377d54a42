"""Marts through the real lake server and dbt: people see what passed its tests, and what did not heals by itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from spark_jobs.config import CHECKOUT
from spark_jobs.server.first_work_part import repairs
from spark_jobs.server.state import PartState, running_supervisor
from spark_jobs.server.thrift_client import thrift_query
from spark_jobs.storage.names.shown_marts import shown_marts
from tests.installations import QUERY_WITHOUT_END, TIDEMARK, Installation, listens, until

pytestmark = pytest.mark.server

DEFINE = """
import sys
import time
from spark_jobs.config import load_settings
from spark_jobs.session import open_session

spark = open_session(load_settings(), "marts")
for statement in sys.argv[1:]:
    spark.sql(statement).collect()
"""
"""Runs statements as the pipeline does: logins may not write what runs publish."""

DELAYS = "SELECT count(*) AS n, sum(departures) AS departures FROM marts.airport_delays"


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation that has run a day of flights, in whose lake an ended creation of a mart had left a file."""
    installation = Installation(tmp_path_factory.mktemp("marts") / "home")
    with installation.serving("--no-airflow"):
        remains_of(installation).parent.mkdir(parents=True)
        remains_of(installation).write_bytes(b"half a file")
        installation.json("prepare", "--from", "2013-01-01", "--to", "2013-01-02")
        day(installation, 1)
        yield installation


def remains_of(installation: Installation) -> Path:
    return Path(installation.settings.lake) / "marts_staging.db" / "aircraft_state" / "part-00000.snappy.parquet"


@pytest.fixture
def own(flights: Installation, tmp_path: Path) -> Iterator[Path]:
    """A team's own dbt folder."""
    folder = tmp_path / "our dbt"
    (folder / "models").mkdir(parents=True)
    (folder / "tests").mkdir()
    flights.environment["TIDEMARK_DBT"] = str(folder)
    yield folder
    flights.environment.pop("TIDEMARK_DBT", None)


def day(installation: Installation, number: int, *, fails: bool = False) -> str:
    """Run a day, and what came of it as text."""
    date = f"2013-01-{number:02d}"
    done = installation.run(str(TIDEMARK), "run", "flights", "--from", date, "--to", date, "--json")
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def define(installation: Installation, *statements: str) -> None:
    environment = {**installation.environment, "PYTHONPATH": str(CHECKOUT)}
    subprocess.run([sys.executable, "-c", DEFINE, *statements], env=environment, check=True, timeout=300)


def versions(installation: Installation) -> dict[str, int]:
    return dict(shown_marts(installation.settings.home, "flights").versions)


@pytest.mark.turns
def test_a_teams_own_models_are_built_tested_and_shown_like_others_also_when_models_alone_changed(
    flights: Installation, own: Path
) -> None:
    before, seen = versions(flights), flights.sql(DELAYS)
    assert before.keys() == {"airport_delays", "aircraft_rotations", "aircraft_state"}
    (own / "models" / "busy_airports.sql").write_text(
        "select origin, sum(departures) as departures, collect_set(mean_delay) as delays"
        " from {{ source('silver', 'departure_delays') }} group by origin"
    )
    (own / "models" / "delays_now.sql").write_text(
        "{{ config(materialized='view') }} select * from {{ ref('airport_delays') }}"
    )
    (own / "tests" / "no_departure_is_late.sql").write_text(
        "select origin from {{ ref('airport_delays') }} where max_delay > 0"
    )
    output = day(flights, 1, fails=True)
    assert "marts_failed" in output
    assert "no_departure_is_late" in output
    after = versions(flights)
    assert flights.sql(DELAYS) == seen
    assert after["airport_delays"] == before["airport_delays"], "what failed a test stays as it was"
    assert "delays_now" not in after, "what is made of it is not built"
    assert flights.sql("SELECT sum(departures) AS departures FROM marts.busy_airports") == [
        {"departures": seen[0]["departures"]}
    ], "the others go on"
    assert shown_marts(flights.settings.home, "flights").published_us is None
    results = flights.sql("SELECT DISTINCT verdict FROM quality.results WHERE name = 'no_departure_is_late'")
    assert results == [{"verdict": "failed"}]

    (own / "tests" / "no_departure_is_late.sql").unlink()
    day(flights, 1)
    assert flights.sql(DELAYS.replace("airport_delays", "delays_now")) == flights.sql(DELAYS) == seen


@pytest.mark.turns
def test_a_model_that_failed_for_want_of_room_is_not_its_owners_to_correct(flights: Installation, own: Path) -> None:
    message = "java.io.IOException: No space left on device"
    (own / "models" / "large.sql").write_text(
        f"SELECT origin, if(departures > 0, raise_error('{message}'), 0) AS n"
        " FROM {{ source('silver', 'departure_delays') }}"
    )
    output = day(flights, 1, fails=True)
    assert "marts_failed" in output
    assert message in output
    assert "free some space" in output
    assert "corrects the model" not in output
    (own / "models" / "wrong.sql").write_text("SELECT nothing FROM {{ source('silver', 'departure_delays') }}")
    output = day(flights, 1, fails=True)
    assert "free some space" in output
    assert "corrects the model" in output, "each of two failures has its next step"
    (own / "models" / "large.sql").unlink()
    (own / "models" / "wrong.sql").unlink()
    day(flights, 1)


def test_what_a_creation_that_was_ended_has_left_is_no_obstacle(flights: Installation) -> None:
    assert not remains_of(flights).exists()
    assert flights.sql("SELECT count(*) AS n FROM marts.aircraft_state")[0]["n"] > 0


@pytest.mark.turns
def test_the_next_run_heals_what_a_hand_wrote_and_nobody_sees_it_before(flights: Installation) -> None:
    seen = flights.sql(DELAYS)
    values = "'EWR', window_start, window_end, 7, 7.0, 7"
    define(flights, f"INSERT INTO marts_staging.airport_delays SELECT {values} FROM marts.airport_delays")
    assert flights.sql(DELAYS) == seen
    day(flights, 2)
    assert flights.sql(DELAYS) != seen
    for mart, windows, counted in (
        ("airport_delays", "departure_delays", "departures"),
        ("aircraft_rotations", "rotations", "flights"),
    ):
        query = f"SELECT count(*) AS n, sum({counted}) AS counted FROM"
        assert flights.sql(f"{query} marts.{mart}") == flights.sql(f"{query} silver.{windows}")


@pytest.mark.turns
def test_marts_of_an_older_lake_which_are_tables_become_views(flights: Installation) -> None:
    note = flights.settings.home / "dbt" / "flights.published"
    stands = json.loads(note.read_text())
    seen = flights.sql(DELAYS)
    older = {"published": stands["published_us"], "marts": [*stands["versions"]]}
    note.write_text(json.dumps(older))
    define(
        flights,
        "DROP VIEW marts.airport_delays",
        "CREATE TABLE marts.airport_delays USING delta AS SELECT * FROM marts_staging.airport_delays LIMIT 1",
    )
    day(flights, 2)
    assert flights.sql(DELAYS) == seen
    assert versions(flights).keys() == {"airport_delays", "aircraft_rotations", "aircraft_state"}


def builds(installation: Installation) -> int:
    """How many models dbt has begun to build."""
    return (installation.settings.logs_dir / "dbt" / "dbt.log").read_text().count(" START sql ")


def test_views_that_the_catalog_has_lost_come_back_as_they_were(flights: Installation) -> None:
    day(flights, 2)
    seen, shown, begun = flights.sql(DELAYS), versions(flights), builds(flights)
    define(flights, "DROP VIEW marts.airport_delays", "DROP VIEW marts.aircraft_state")
    day(flights, 2)
    assert flights.sql(DELAYS) == seen
    assert flights.sql("SELECT count(*) > 0 AS some FROM marts.aircraft_state") == [{"some": True}]
    assert (versions(flights), builds(flights)) == (shown, begun), "nothing had to be built"


@pytest.mark.turns
def test_a_view_comes_back_as_it_was_also_where_a_hand_has_written_to_its_table(flights: Installation) -> None:
    day(flights, 2)
    seen, begun = flights.sql(DELAYS), builds(flights)
    define(
        flights,
        "DROP VIEW marts.airport_delays",
        "INSERT INTO marts_staging.airport_delays SELECT * FROM marts_staging.airport_delays",
    )
    day(flights, 2)
    assert flights.sql(DELAYS) == seen
    assert builds(flights) > begun, "what stands now was not tested"


def building_without_end(flights: Installation, own: Path) -> subprocess.Popen[str]:
    """A run that is in the middle of a statement of `slow.sql`, to which there is no end."""
    (own / "models" / "slow.sql").write_text(
        f"SELECT count(*) AS n, ({QUERY_WITHOUT_END}) AS largest FROM {{{{ source('silver', 'departure_delays') }}}}"
    )
    log = flights.settings.logs_dir / "dbt" / "dbt.log"
    before = log.read_text().count("START sql table model marts_staging.slow")
    run = flights.start(str(TIDEMARK), "run", "flights", "--from", "2013-01-02", "--to", "2013-01-02")
    until(lambda: log.read_text().count("START sql table model marts_staging.slow") > before, 120)
    return run


@pytest.mark.turns
@pytest.mark.parametrize("after_s", [1.0, 6.5])
def test_an_interrupt_ends_a_build_that_is_in_the_middle_of_a_statement(
    flights: Installation, own: Path, after_s: float
) -> None:
    run = building_without_end(flights, own)
    time.sleep(after_s)  # dbt asks how the statement stands; the server answers at its end, or after 5 s
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 130, output
    assert "Traceback" not in output
    server = psutil.Process(part(flights, "lake").pid)
    until(lambda: server.cpu_percent(0.5) < 40, 60)
    (own / "models" / "slow.sql").unlink()
    day(flights, 2)
    assert flights.sql(DELAYS)[0]["n"] > 0


@pytest.mark.turns
def test_marts_that_failed_with_the_server_are_not_their_owners_to_correct(flights: Installation, own: Path) -> None:
    restarts = part(flights, "lake").restarts
    run = building_without_end(flights, own)
    server = part(flights, "lake").pid
    assert server is not None
    os.kill(server, signal.SIGKILL)
    output, _ = run.communicate(timeout=120)
    assert run.returncode not in (0, None), output
    assert "start the lake server with `tidemark up`" in " ".join(output.split()), output
    assert "corrects the model" not in output
    (own / "models" / "slow.sql").unlink()
    until(lambda: part(flights, "lake").restarts > restarts and part(flights, "lake").condition == "running", 120)
    until(lambda: part(flights, "first-work").condition == "finished", 180)
    day(flights, 2)


@pytest.mark.turns
def test_a_lost_catalog_and_its_names_come_back_without_anybody(flights: Installation, own: Path) -> None:
    names = ("marts.airport_delays", "silver.rotations", "gold.flights")
    model = own / "models" / "given_up.sql"
    model.write_text("select count(*) as n from {{ source('silver', 'departure_delays') }}")
    day(flights, 2)
    del flights.environment["TIDEMARK_DBT"]
    day(flights, 2)  # by the models that the server knows
    assert "given_up" in versions(flights), "its table is there without its model"
    seen = [flights.sql(f"SELECT count(*) AS n FROM {name}") for name in names]
    count = f"SELECT count(*) AS n FROM {names[0]}"
    restarts, begun = part(flights, "lake").restarts, builds(flights)
    catalog = flights.settings.home / "metastore"
    shutil.rmtree(catalog)
    # below a server that runs, Derby may begin the folder again
    (catalog / "seg0").mkdir(parents=True)
    until(lambda: part(flights, "lake").restarts > restarts, 60)
    until(lambda: part(flights, "lake").condition == "running")
    until(lambda: listens(flights.settings.thrift_port), 120)
    assert thrift_query(flights.settings, count, 180) == [(seen[0][0]["n"],)], (
        "a reader waits until the names are there"
    )
    until(lambda: part(flights, "first-work").condition == "finished", 180)
    assert "flights: mended: the catalog had lost " in repairs(flights.settings)[0]
    assert [flights.sql(f"SELECT count(*) AS n FROM {name}") for name in names] == seen
    assert builds(flights) == begun, "the marts' tables were there"
    assert "given_up" not in versions(flights), "neither its view nor its model is there"


def part(installation: Installation, name: str) -> PartState:
    state = running_supervisor(installation.settings)
    assert state is not None
    wanted = state.part(name)
    assert wanted is not None
    return wanted


def test_every_mart_and_every_column_of_it_says_what_it_is(flights: Installation) -> None:
    # what a team says of its own models is the team's
    shipped = {model.stem for model in (CHECKOUT / "dbt" / "models").rglob("*.sql")}
    for database in ("marts", "marts_staging"):
        names = {row["tableName"] for row in flights.sql(f"SHOW TABLES IN {database}")} & shipped
        assert len(names) >= 3
        for name in sorted(names):
            described = flights.sql(f"DESCRIBE EXTENDED {database}.{name}")
            columns = list(takewhile(lambda row: row["col_name"] and row["col_name"][0] != "#", described))
            assert [row["col_name"] for row in columns if not row["comment"]] == [], (database, name)
            assert any(row["col_name"] == "Comment" and row["data_type"] for row in described), (database, name)
