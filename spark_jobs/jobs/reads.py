"""Reads for programs that have only a source's name: its published chains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_jobs.config import Settings, load_settings
from spark_jobs.engine.spark.checkpoints import ChainFrame
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.state_reads import check_keeps_chains
from spark_jobs.restatement.chains import published_chains, retention_of
from spark_jobs.sources import find_source
from spark_jobs.storage.coordination.read_counts import count_read
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def chains_of(spark: SparkSession, source: str, settings: Settings | None = None) -> ChainFrame:
    """The published chains of a source, for `join_as_of` and `ChainFrame.states`; times are in microseconds.

    The call counts as one read of all entities, however often the chains are then used.

    Raises:
        ParameterError: the source keeps no chains.
        NotPublished: nothing is published yet.
    """
    settings = settings or load_settings()
    checked = find_source(settings.sources, source)
    check_keeps_chains(checked)
    lake = SparkLake(spark)
    point = ReadPoint.open(lake, checked)
    kept = replace(retention_of(point.frontiers), horizon=point.horizon_us)
    count_read(settings.home, checked.name)
    return published_chains(lake, checked, point.publication, frontiers=kept)
