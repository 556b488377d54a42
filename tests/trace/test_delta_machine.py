"""The state machine of `tests/engine/arrangement_machine` over an arrangement on Delta: few steps."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, Slice
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.records_journal import RecordsJournal
from tests.engine.arrangement_machine import ArrangementBesideHistory, Row, leaps, updates
from tests.trace.test_delta_plane import frame, journal_of, listed, updates_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class OnDelta(ArrangementBesideHistory):
    """Reads and looks at less than in memory: at a batch once when it is new, and at all that live at the end."""

    spark: SparkSession

    def __init__(self) -> None:
        super().__init__()
        self.lake = SparkLake(self.spark)
        self.database = f"t_{uuid.uuid4().hex[:12]}"
        self.lake.spark.sql(f"CREATE DATABASE {self.database}")
        for table in (updates_of(self.database), journal_of(self.database)):
            self.lake.spark.sql(table.ddl())

    @initialize(days=st.lists(st.tuples(updates, st.integers(1, 3)), min_size=1, max_size=2), tick=leaps)
    def start(self, days: list[tuple[list[Row], int]], tick: int) -> None:
        super().start(days, tick)

    def opened(self) -> Arrangement[Any]:
        plane = DeltaPlane(self.lake, updates_of(self.database))
        return Arrangement(plane, RecordsJournal(self.lake, journal_of(self.database)))

    def as_updates(self, rows: list[Row]) -> Any:
        return frame(self.spark, rows)

    def rows(self, updates: Any) -> list[Row]:
        return listed(updates)

    def batch(self, handle: str) -> pa.Table:
        stored = self.arrangement.plane.read([Slice(handle)]).toArrow()
        return stored.set_column(2, "time", stored.column("time").cast(pa.int64()))

    def written(self) -> int:
        return self.lake.commits

    def looked_at(self, handle: str) -> bool:
        return handle in self.stored

    def probes(self) -> set[int]:
        return {self.since, self.seal - 1, *sorted(self.definite)[-2:]}

    def teardown(self) -> None:
        try:
            if hasattr(self, "stored"):
                for handle in self.arrangement.state.handles() & self.stored.keys():
                    assert self.batch(handle).equals(self.stored[handle])
        finally:
            self.lake.spark.sql(f"DROP DATABASE {self.database} CASCADE")


def machine(spark: SparkSession, *, examples: int, steps: int) -> None:
    # no shrinking: each step costs seconds, and the steps that failed are printed
    few = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Machine", (OnDelta,), {"spark": spark}), settings=few)


@pytest.mark.long
def test_an_arrangement_on_delta_reads_like_the_list_of_everything_ever_accepted(spark: SparkSession) -> None:
    machine(spark, examples=2, steps=8)


@pytest.mark.long
def test_an_arrangement_on_delta_over_more_and_longer_histories(spark: SparkSession) -> None:
    machine(spark, examples=8, steps=20)
