"""Records: from the bytes of CSV, NDJSON and Parquet files to typed rows, or to rejects with a rule and a reason.

No record is dropped and no value is guessed: each record becomes one row of the output, good or rejected (see `rejects`
for rejects in ranges). The places where blocks are cut change no row. `naive.py` reads record by record with the same
results; tests compare both.
"""

from spark_jobs.kernels.records.headers import FileRejectedError
from spark_jobs.kernels.records.parquet import read_parquet
from spark_jobs.kernels.records.reading import read_csv, read_json, read_ndjson
from spark_jobs.kernels.records.rules import DRIFT_RULES, FILE_RULES, RULES, RULES_VERSION, raw_bytes
from spark_jobs.kernels.records.spec import (
    CHECK_PREFIX,
    COLUMN_PREFIX,
    TIMELINE_PREFIX,
    ColumnSpec,
    RecordSpec,
    RowCheck,
)

__all__ = [
    "CHECK_PREFIX",
    "COLUMN_PREFIX",
    "DRIFT_RULES",
    "FILE_RULES",
    "RULES",
    "RULES_VERSION",
    "TIMELINE_PREFIX",
    "ColumnSpec",
    "FileRejectedError",
    "RecordSpec",
    "RowCheck",
    "raw_bytes",
    "read_csv",
    "read_json",
    "read_ndjson",
    "read_parquet",
]
