"""What everything that users read of a lake says, as a bag for each name: how many rows, and the sum of their hashes.

Bags say whether two lakes publish the same to the last bit, whatever the order of their rows and whatever tables lie
behind the names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

HERE = Path(__file__).parent
SPELLED_BY_RUNS = ("run_id", "token")
"""Columns that say who wrote a row, not what is so."""
LEFT_OUT = ("bytes", "compactions", "chain_metrics", "chunks", "files")
"""Parts of names that tell how something is stored."""

Bag = list[Any]
"""The number of rows, and the sum of their hashes as text."""


def bag(rows: DataFrame) -> Bag:
    """The bag of a frame: equal for equal rows in any order, each counted as often as it stands."""
    columns = sorted(column for column in rows.columns if column not in SPELLED_BY_RUNS)
    # as JSON, so that a map or a null in a list hashes too
    hashed = F.xxhash64(
        F.to_json(F.struct(*[F.col(f"`{column}`") for column in columns]), {"ignoreNullFields": "false"})
    )
    total = F.sum(hashed.cast("decimal(38,0)"))
    counted = rows.select(F.count("*").alias("rows"), total.alias("sum")).collect()[0]
    return [counted["rows"], str(counted["sum"] or 0)]


def shown(spark: SparkSession) -> list[str]:
    """Every view that silver, gold and trace show to users."""
    views = [
        f"{database}.{row['viewName']}"
        for database in ("silver", "gold")
        for row in spark.sql(f"SHOW VIEWS IN {database}").collect()
    ]
    return sorted([*(view for view in views if not any(part in view for part in LEFT_OUT)), "trace.publications"])


def bags(spark: SparkSession, views: Iterable[str]) -> dict[str, Bag]:
    """The bags of views."""
    return {view: bag(spark.table(view)) for view in views}


def kept(scenario: str) -> dict[str, Bag]:
    """The bags of a scenario as they are kept beside this file."""
    return json.loads((HERE / f"{scenario}.json").read_text())


def keep(scenario: str, found: dict[str, Bag]) -> None:
    """Keep the bags of a scenario; a change that is meant to change answers does so, and says why."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    (HERE / f"{scenario}.json").write_text(f"{{\n{lines}\n}}\n")
