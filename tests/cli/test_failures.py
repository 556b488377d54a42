"""What nobody foresaw ends in a sentence with a way on; the traceback is in a file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.failures import explained, recognized

CASES = [
    (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
    (OSError(errno.EFBIG, "File too large"), "disk_failed"),
    (RuntimeError("Job aborted: java.io.IOException: Input/output error\n\tat a.b.C\n"), "disk_failed"),
    (RuntimeError("Job aborted: java.io.IOException: No space left on device\n\tat a.b.C\n"), "disk_full"),
    (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), "memory_exhausted"),
    (MemoryError(), "memory_exhausted"),
    (RuntimeError("SparkException: Python worker exited unexpectedly (crashed)\n\tat x"), "worker_died"),
    (RuntimeError("java.nio.file.NoSuchFileException: /home/tmp/blockmgr-a8bac8fb-be44/0c/temp_1"), "scratch_lost"),
    (
        RuntimeError(
            "AnalysisException: org.apache.hadoop.hive.ql.metadata.HiveException: MetaException(message:Couldnt obtain"
            " a new sequence (unique id) : Container 384 not found.)"
        ),
        "catalog_lost",
    ),
    (RuntimeError("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file"), "file_damaged"),
    (KeyError("departed"), "unexpected"),
]


@pytest.mark.parametrize(("error", "code"), CASES, ids=[str(case[0])[:20] for case in CASES])
def test_a_failure_is_explained_in_a_sentence(settings: Settings, error: Exception, code: str) -> None:
    told = explained(error, settings)
    assert told.code == code
    assert told.expected and told.found and told.consequence and told.next_step
    assert "\tat" not in told.sentence()
    assert type(error).__name__ in Path(told.log).read_text()


def test_what_it_came_from_counts_and_a_refusal_speaks_for_itself(settings: Settings) -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as cause:
            raise ValueError("the write failed") from cause
    except ValueError as error:
        assert explained(error, settings).code == "disk_full"
    refusal = ParameterError(expected="a", found="b", next_step="c")
    assert explained(refusal, settings) is refusal


def test_others_are_not_recognized_and_leave_no_file(settings: Settings) -> None:
    assert recognized(ValueError("a statement that cannot be parsed"), settings) is None
    assert not (settings.logs_dir / "failures").exists()
