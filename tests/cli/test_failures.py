"""What nobody foresaw ends in a sentence with a way on; the traceback is in a file."""

from __future__ import annotations

import errno
import json
import socket
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TTransportException

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.extraction.tables import _UNREACHABLE
from spark_jobs.failures import (
    _KINDS,
    CatalogLost,
    DiskFailed,
    TableFileDamaged,
    WorkerDied,
    explain,
    recognize,
    recognized_in,
)
from spark_jobs.publish.marts import _SERVER_LOST
from tests.installations import free_port

SPARK = Path(pyspark.__file__).parent / "jars"
JARS = Settings().jars

CASES = [
    (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
    (OSError(errno.EFBIG, "File too large"), "disk_failed"),
    (RuntimeError("Job aborted: java.io.IOException: Input/output error\n\tat a.b.C\n"), "disk_failed"),
    (RuntimeError("Job aborted: java.io.IOException: No space left on device\n\tat a.b.C\n"), "disk_full"),
    (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), "memory_exhausted"),
    (MemoryError(), "memory_exhausted"),
    (RuntimeError("SparkException: Python worker exited unexpectedly (crashed)\n\tat x"), "worker_died"),
    (OSError(errno.EDQUOT, "whatever it is called"), "disk_full"),
    (RuntimeError("[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2) are not contiguous."), "file_damaged"),
    (ValueError("no column DELTA_FILE_NOT_FOUND"), "unexpected"),
    (RuntimeError("java.nio.file.NoSuchFileException: /home/tmp/blockmgr-a8bac8fb-be44/0c/temp_1"), "scratch_lost"),
    (
        RuntimeError(
            "AnalysisException: org.apache.hadoop.hive.ql.metadata.HiveException: MetaException(message:Couldnt obtain"
            " a new sequence (unique id) : Container 384 not found.)"
        ),
        "catalog_lost",
    ),
    (
        RuntimeError(
            "HiveException: MetaException(message:Got exception: Connection to 127.0.0.1:5432 refused."
            " Check that the hostname and port are correct)"
        ),
        "catalog_unreachable",
    ),
    (RuntimeError("Unable to fetch table hourly. Connection attempt timed out."), "catalog_unreachable"),
    (
        RuntimeError("[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`default` cannot be found."),
        "catalog_unreachable",
    ),
    # a table that is a source's, not the catalog
    (RuntimeError("PSQLException: Connection to 127.0.0.1:5432 refused."), "unexpected"),
    (RuntimeError("[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`silver` cannot be found."), "unexpected"),
    (RuntimeError("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file"), "file_damaged"),
    (KeyError("departed"), "unexpected"),
]

OF_A_FUNCTION = (
    "[USER_RAISED_EXCEPTION] before_first_publication: expected a time from the first publication on, 2024-01-01 23:59,"
    " found 2023-12-31 00:00; ask later: a run of several drops publishes them at one time SQLSTATE: P0001\n\tat x"
)


def test_a_refusal_by_a_function_of_sql_has_its_own_code_for_commands_and_for_dbt(settings: Settings) -> None:
    told = explain(RuntimeError(OF_A_FUNCTION), settings)
    assert (told.code, told.expected, told.found, told.next_step) == (
        "before_first_publication",
        "a time from the first publication on, 2024-01-01 23:59",
        "2023-12-31 00:00",
        "ask later: a run of several drops publishes them at one time",
    )
    assert recognized_in(f"Runtime Error in model late\n  {OF_A_FUNCTION}") == (
        f"{told.code}: expected {told.expected}, found {told.found}",
        told.next_step,
    )


@pytest.mark.parametrize(("error", "code"), CASES, ids=[str(case[0])[:20] for case in CASES])
def test_a_failure_is_explained_in_a_sentence(settings: Settings, error: Exception, code: str) -> None:
    told = explain(error, settings)
    assert told.code == code
    assert told.expected and told.found and told.consequence and told.next_step
    assert "\tat" not in told.sentence()
    assert type(error).__name__ in Path(told.facts["log"]).read_text()


def test_what_it_came_from_counts_and_a_refusal_speaks_for_itself(settings: Settings) -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as cause:
            raise ValueError("the write failed") from cause
    except ValueError as error:
        assert explain(error, settings).code == "disk_full"
    refusal = ParameterError(expected="a", found="b", next_step="c")
    assert explain(refusal, settings) is refusal


def test_others_are_not_recognized_and_leave_no_file(settings: Settings) -> None:
    assert recognize(ValueError("a statement that cannot be parsed"), settings) is None
    assert not (settings.logs_dir / "failures").exists()


def test_what_other_programs_say_is_what_their_pinned_versions_say(tmp_path: Path) -> None:
    """A condition that an upgrade renames, or a sentence that it words otherwise, would end as `unexpected`."""
    named = {condition for kind in _KINDS for condition in kind.conditions} | {_UNREACHABLE}
    known = conditions_of(SPARK / "spark-common-utils_2.13-*.jar", "error/error-conditions.json")
    known |= conditions_of(JARS / "delta-spark_*.jar", "error/delta-error-classes.json")
    assert named <= known
    python = "org/apache/spark/api/python/BasePythonRunner$ReaderIterator$$anonfun$1.class"
    said = {
        WorkerDied: [
            text_in(SPARK / "spark-core_*.jar", python, b"Python worker exited unexpectedly"),
            text_in(SPARK / "spark-core_*.jar", "org/apache/spark/ExecutorLostFailure.class", b"ExecutorLostFailure"),
        ],
        CatalogLost: [
            f"MetaException(message:{derby('40XD2').replace('{0}', '384')}",
            f"MetaException(message:{derby('XSCH1.S').replace('{0}', '384')}",
            "ERROR 40XD2: ",
        ],
        # of an embedded catalog that was opened while its disk was full
        DiskFailed: [derby(state) for state in ("25502", "25503", "25505", "XSLA4.D")],
        TableFileDamaged: [
            text_in(
                SPARK / "parquet-hadoop-*.jar",
                "org/apache/parquet/hadoop/ParquetFileReader.class",
                b"is not a Parquet file",
            ),
            of_pyarrow(tmp_path),
        ],
    }
    for error, texts in said.items():
        for text in texts:
            assert any(kind.matches(text) for kind in _KINDS if kind.error is error), (error, text)


def test_thrift_says_of_a_server_that_is_gone_what_marts_look_for() -> None:
    away = TSocket("127.0.0.1", free_port())
    with pytest.raises(TTransportException) as refused:
        away.open()
    assert _SERVER_LOST.search(str(refused.value))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = TSocket(*listener.getsockname())
        served.open()
        listener.accept()[0].close()
        with pytest.raises(TTransportException) as closed:
            served.read(1)
        served.close()
    assert _SERVER_LOST.search(str(closed.value))


def only(pattern: Path) -> zipfile.ZipFile:
    """The one jar that a pattern names."""
    (found,) = pattern.parent.glob(pattern.name)
    return zipfile.ZipFile(found)


def conditions_of(jar: Path, member: str) -> set[str]:
    """The conditions that a jar describes, those with a part after the point too."""
    described = json.loads(only(jar).read(member))
    parts = {f"{name}.{part}" for name, each in described.items() for part in each.get("subClass", {})}
    return {*described} | parts


def text_in(jar: Path, member: str, text: bytes) -> str:
    """A text that a class of a jar has."""
    assert text in only(jar).read(member), member
    return text.decode()


def derby(state: str) -> str:
    """What Derby says in a state."""
    with only(SPARK / "derby-1*.jar") as jar:
        texts = [jar.read(name).decode("latin1") for name in jar.namelist() if name.endswith("_en.properties")]
    lines = (line for text in texts for line in text.splitlines())
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{state}="))


def of_pyarrow(folder: Path) -> str:
    """What pyarrow says of a file that is no Parquet."""
    (folder / "a.parquet").write_bytes(b"no Parquet at all, and long enough")
    with pytest.raises(pa.ArrowInvalid) as refusal:
        pq.read_table(folder / "a.parquet")
    return str(refusal.value)
