"""The places of backups: a full disk is named as one, and leaves no file that counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.backup.stores import Store, as_pieces
from spark_jobs.failures import DiskFull

FULL = Path("/dev/full")
"""A device that takes nothing, as a full disk does."""


@pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no device that is always full")
def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    (tmp_path / "one.parquet.part").symlink_to(FULL)
    with pytest.raises(DiskFull, match="disk_full") as refused:
        store.write("one.parquet", as_pieces(b"x" * 100))
    assert refused.value.facts["place"] == str(tmp_path)
    assert "one.parquet" not in store.sizes("")
