"""The part of the audit that checks chains: their states at every event time must be those that the trace gives.

The cuts of a chain depend on when its deltas came, so segments are not compared. The states that a reader gets from all
segments together are compared. A wrong checkpoint or delta makes a wrong state somewhere.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.audit.history import MOST_DIFFERENCES
from spark_jobs.definitions.meaning import meaning_of
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.engine.spark.checkpoints import versions_at
from spark_jobs.restatement.chains import chains_of_segments, published_chains
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.lakes.lake import FrameLake


def versions_otherwise(lake: FrameLake, scope: Scope, segments: DataFrame) -> list[dict[str, Any]]:
    """The states that only the published chains give, or only the segments that were computed anew.

    `era` is `closing` for a state that is published, `live` for one that should be. At most `MOST_DIFFERENCES` states.
    """
    source, now = scope.source, scope.publication
    chains = published_chains(lake, source, now)
    chains_anew = chains_of_segments(segments.where(F.col("era") == LIVE), meaning_of(source))
    published, anew = (versions_at(of, now.published_us, scope.frontiers.horizon_us) for of in (chains, chains_anew))
    wrong = published.exceptAll(anew).withColumn("era", F.lit(CLOSING))
    missing = anew.exceptAll(published).withColumn("era", F.lit(LIVE))
    try:
        rows = wrong.unionByName(missing).limit(MOST_DIFFERENCES).collect()
    except PySparkException as error:
        message = _message_of_worker(error)
        if message is None:
            raise
        # segments that contradict themselves give no states
        return [{"table": CHAINS.qualified, "found": message}]
    return [{"table": CHAINS.qualified, **row.asDict(recursive=True)} for row in rows]


def _message_of_worker(error: PySparkException) -> str | None:
    """The message of an error of Python code in a worker; None for any other failure, such as the worker's death."""
    _, is_of_python, traceback = str(error).partition("Traceback (most recent call last)")
    lines = [line.strip() for line in traceback.splitlines()]
    # the stack trace of Java comes after it
    of_python = list(takewhile(lambda line: not line.startswith("at "), lines))
    return next((line[:300] for line in reversed(of_python) if line), None) if is_of_python else None
