"""Records: from the bytes of CSV, NDJSON and Parquet files to typed rows, or to rejects with a rule and a reason.

No record is dropped and no value is guessed: each record becomes one row of the output, good or rejected (see `rejects`
for rejects in ranges). The places where blocks are cut change no row. `engine.twins` reads record by record with the
same results; tests compare both.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.records.arrays import array_lines
    from spark_jobs.engine.records.delimiters import DELIMITERS
    from spark_jobs.engine.records.envelopes import Envelope
    from spark_jobs.engine.records.erased import ERASED, Erasures, erased_hash, texts_of
    from spark_jobs.engine.records.headers import DELIMITER_LINE, FileRejectedError, without_unnamed
    from spark_jobs.engine.records.parquet import column_texts, read_parquet
    from spark_jobs.engine.records.reading import read_csv, read_json, read_ndjson
    from spark_jobs.engine.records.rules import DRIFT_RULES, ERASED_REASON, RULES_VERSION
    from spark_jobs.engine.records.slow import Cell, parse_object
    from spark_jobs.engine.records.spec import CHECK_PREFIX, COLUMN_PREFIX, ColumnSpec, ColumnType, RecordSpec, RowCheck
    from spark_jobs.engine.records.text_encodings import ENCODINGS, UTF8, as_utf8
    from spark_jobs.engine.records.times import (
        DAY_US,
        EPOCH_POWERS,
        GREATEST_US,
        LEAST_US,
        READ,
        landed_instant,
        read_pattern,
    )
    from spark_jobs.engine.records.tokens import LITERAL, NESTED, NULL, TEXT
    from spark_jobs.engine.records.values import read_column
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "CHECK_PREFIX",
    "COLUMN_PREFIX",
    "DAY_US",
    "DELIMITERS",
    "DELIMITER_LINE",
    "DRIFT_RULES",
    "ENCODINGS",
    "EPOCH_POWERS",
    "ERASED",
    "ERASED_REASON",
    "GREATEST_US",
    "LEAST_US",
    "LITERAL",
    "NESTED",
    "NULL",
    "READ",
    "RULES_VERSION",
    "TEXT",
    "UTF8",
    "Cell",
    "ColumnSpec",
    "ColumnType",
    "Envelope",
    "Erasures",
    "FileRejectedError",
    "RecordSpec",
    "RowCheck",
    "array_lines",
    "as_utf8",
    "column_texts",
    "erased_hash",
    "landed_instant",
    "parse_object",
    "read_column",
    "read_csv",
    "read_json",
    "read_ndjson",
    "read_parquet",
    "read_pattern",
    "texts_of",
    "without_unnamed",
]
