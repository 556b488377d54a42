"""What keeps a plan from writing: every method of a lake that writes has another meaning in the overlay."""

from __future__ import annotations

from spark_jobs.storage.lake import Lake
from spark_jobs.storage.overlay import OverlayLake

READS = {
    "uri",
    "newest_token",
    "committed_token",
    "names",
    "names_if_present",
    "run",
    "frame",
    "files_read",
    "files_stored",
    "logged_bounds",
    "in_use",
    "on_disk",
    "fingerprint",
    "change_since",
    "miscount",
    "differing_files",
    "misread_rows",
}
"""Methods that look and leave everything as it is."""


def test_every_method_of_a_lake_but_its_reads_is_replaced_by_the_overlay() -> None:
    public = {name for name, value in vars(Lake).items() if callable(value) and not name.startswith("_")}
    assert public - READS <= set(vars(OverlayLake))
