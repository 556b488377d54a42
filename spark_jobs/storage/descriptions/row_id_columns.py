"""The ledger's columns for the range of a file's row ids, also for files that an older version landed."""

from __future__ import annotations

from spark_jobs.sources.drops import LINE_BITS, LINE_LIMIT, PLACE_BITS
from spark_jobs.storage.descriptions.schema import Column

_OF_RANK = (
    "IF(path IS NOT NULL AND coalesce(version, 'landed') <> 'retracted',"
    f" shiftleft(seq_no, {PLACE_BITS}) + shiftleft(CAST(file_rank AS BIGINT), {LINE_BITS}) + {{line}}, NULL)"
)
"""SQL: the row id of a line, for the ledger of an older version, which ranked the files of a drop by name. A file that
was taken back may have lost its rank to another one: if it comes back, it is treated as new."""

FIRST_ROW_ID = Column(
    "first_row_id",
    "BIGINT",
    "Row id of the file's line 1: the drop's number in the upper 20 bits, below them the file's place, which follows"
    " from its path. Null of a file that an older version took back.",
    filled=_OF_RANK.format(line=1),
)
LAST_ROW_ID = Column(
    "last_row_id",
    "BIGINT",
    "No row id of the file is, or ever was, beyond this one, and none of another file is between both.",
    filled=_OF_RANK.format(line=LINE_LIMIT - 1),
)
