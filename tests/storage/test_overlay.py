"""The overlay of a plan offers the contract of a lake, and nothing that changes tables."""

from __future__ import annotations

from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.lake import Catalog, FrameLake, Lake, RunLake, TableReader
from spark_jobs.storage.lakes.overlay import OverlayLake, PlanCatalog
from spark_jobs.storage.lakes.spark_catalog import SparkCatalog
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.stored_lake import StoredLake

OF_PLANS = {"written_files", "written_rows", "wrote", "recorded_rows", "keep", "close"}
"""Methods of the overlay beside the contract: a plan asks it for the rows that it kept apart."""
MOST = 15
"""The most methods of what a stage is given as its lake."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def offered(contract: type) -> set[str]:
    return {name for of in contract.__mro__ if getattr(of, "_is_protocol", False) for name in public(of)}


def test_what_a_stage_is_given_is_small() -> None:
    assert len([name for name in offered(Lake) if callable(getattr(SparkLake, name, None))]) <= MOST


def test_the_overlay_has_no_method_that_only_the_written_lake_has() -> None:
    assert public(OverlayLake) - OF_PLANS <= offered(FrameLake)
    changing = public(SparkLake) - offered(FrameLake)
    assert {"rewrite", "replace_record", "replace_records", "amend", "delete_tokens"} <= changing
    assert not public(OverlayLake) & changing


def test_a_lake_of_files_is_what_a_run_is_given_and_no_more() -> None:
    assert public(FileLake) == offered(RunLake)


def test_the_catalog_of_a_plan_has_no_method_beside_the_contract() -> None:
    assert public(PlanCatalog) - {"has"} == offered(Catalog)
    assert {"drop", "take_up", "copy_folder"} <= public(SparkCatalog) - offered(Catalog)


def test_readers_of_files_have_no_method_that_writes() -> None:
    assert public(StoredLake) - {"at"} <= offered(TableReader)
