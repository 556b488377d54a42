"""The decision where a stage's work is done, and how it is cut: in this process, or in the tasks of a Spark job.

It is made here alone, by the bytes of the rows and by Spark's master. Statistics of files give the bytes before a row
is read. With a local master the process and the tasks share one machine, so the process does all that fits its memory.
On a cluster the process is a thin client, and does what a job would take longer to begin than to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from spark_jobs.memory import TIMES, bytes_in_all
from spark_jobs.threads import THREADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESS_MEMORY = "spark.tidemark.process.memory"
"""The setting of a Spark session that says how many bytes of memory rows of a stage may take in this process."""
LOCAL_MEMORY, CLUSTER_MEMORY = max(bytes_in_all() // 8, 1 << 30), 32 << 20
"""The bytes of memory for rows of a stage in this process unless the session has the setting. With a local master or
without Spark they are an eighth of the machine's, and at least 1 GiB; a cluster's client has 32 MiB."""
ROWS_ALONE = 1 << 18
"""The number of rows up to which one thread handles them by itself."""
BYTES_A_TASK = 1 << 27
"""The approximate bytes of the rows dealt to one task. A task needs a few times as much memory to sort and write."""
LEAST_BYTES_A_TASK = 4 << 20
"""The fewest bytes for which a task more is worth its start, where cores would be idle otherwise."""
_ANSWERS: WeakKeyDictionary[SparkSession, tuple[bool, int | None]] = WeakKeyDictionary()
_SPLITS = re.compile(r"splits=(\d+)")


class Sized(Protocol):
    """Rows whose number and bytes are known before they are read."""

    @property
    def n_rows(self) -> int:
        """An upper bound of the number of rows."""
        ...

    @property
    def n_bytes(self) -> int:
        """The approximate bytes of the rows in memory."""
        ...


@dataclass(frozen=True, slots=True)
class Cut:
    """The place of some work, and its cut.

    Attributes:
        here: True if this process does the work, without a Spark job.
        tasks: the number of tasks to which rows are dealt.
        rows_a_piece: the approximate number of rows that are read and dealt as one piece.
    """

    here: bool
    tasks: int
    rows_a_piece: int


def memory_conf(size: str | None) -> dict[str, str]:
    """The setting of a session for a size such as `512m` or `2g`, which `process_memory` then returns; empty for
    None."""
    return {} if size is None else {PROCESS_MEMORY: str(int(size[:-1]) << (20 if size[-1] == "m" else 30))}


def process_memory(spark: SparkSession | None) -> int:
    """The bytes of memory that rows of a stage may take in this process."""
    setting = None if spark is None else _answers_of(spark)[1]
    if setting is not None:
        return setting
    return LOCAL_MEMORY if is_local(spark) else CLUSTER_MEMORY


def is_local(spark: SparkSession | None) -> bool:
    """True if tasks run on this machine, or there are none."""
    return spark is None or _answers_of(spark)[0]


def _answers_of(spark: SparkSession) -> tuple[bool, int | None]:
    """True if the session's master is a local one, and the session's setting. A session is asked once."""
    answers = _ANSWERS.get(spark)
    if answers is None:
        master, setting = spark.conf.get("spark.master", "local"), spark.conf.get(PROCESS_MEMORY, None)
        answers = _ANSWERS[spark] = (is_local_master(master or "local"), None if setting is None else int(setting))
    return answers


def is_local_master(master: str) -> bool:
    """True if Spark's master with this URL runs tasks in the driver's own process."""
    return re.match(r"local(\[|$)", master) is not None


def is_for_here(spark: SparkSession | None, n_bytes: int, times: int = TIMES) -> bool:
    """True if this process handles that many bytes of rows itself. `times`: the most memory that the work takes, as a
    multiple of the bytes. Without a session it handles all of them."""
    return spark is None or times * n_bytes <= process_memory(spark)


def waiting_bytes(spark: SparkSession | None) -> int:
    """The bytes of rows that may wait in this process for tasks of it."""
    return process_memory(spark) // TIMES


def tasks_at_once(spark: SparkSession | None) -> int:
    """The number of tasks of this process that may have all their rows in memory at a time."""
    return max(process_memory(spark) // (TIMES * BYTES_A_TASK), 1)


def cut_work(
    spark: SparkSession | None, n_rows: int, n_bytes: int, rows_a_task: int, bytes_a_task: int | None = None
) -> Cut:
    """The cut of work whose tasks keep the rows dealt to them.

    In this process few rows make as few tasks as their bytes allow, and more rows at least one per thread. In a Spark
    job there are tasks for all cores of the cluster, unless they would have hardly any rows. `bytes_a_task`: None:
    BYTES_A_TASK.
    """
    by_size = max(-(-n_bytes // (bytes_a_task or BYTES_A_TASK)), 1)
    if n_rows > ROWS_ALONE:
        by_size = max(by_size, -(-n_rows // rows_a_task))
    if is_for_here(spark, n_bytes):
        return Cut(True, by_size if n_rows <= ROWS_ALONE else max(by_size, THREADS), rows_a_task)
    n_tasks = max(by_size, tasks_for_cores(spark, n_bytes))
    return Cut(False, n_tasks, min(rows_a_task, max(-(-n_rows // n_tasks), 1)))


def cut_pass(spark: SparkSession | None, rows: Sized, rows_a_piece: int, kept_bytes: int = 0) -> Cut:
    """The cut of work that goes through rows once and keeps few of them.

    With a local master it is done in this process, whatever the number of rows, unless the `kept_bytes` take more
    memory than the process may use.
    """
    if (kept_bytes <= process_memory(spark) and is_local(spark)) or is_for_here(spark, rows.n_bytes):
        return Cut(True, 1, max(rows.n_rows, 1) if rows.n_rows <= ROWS_ALONE else rows_a_piece)
    pieces = max(-(-rows.n_rows // rows_a_piece), tasks_for_cores(spark, rows.n_bytes))
    return Cut(False, pieces, max(-(-rows.n_rows // pieces), 1))


def tasks_for_cores(spark: SparkSession | None, n_bytes: int, least_bytes: int | None = None) -> int:
    """The number of tasks by which all cores that Spark has now get some of the bytes, at least `least_bytes` each
    (None: LEAST_BYTES_A_TASK)."""
    wanted = max(-(-n_bytes // (least_bytes or LEAST_BYTES_A_TASK)), 1)
    return wanted if wanted == 1 else min(wanted, cores_of(spark))


def cores_of(spark: SparkSession | None) -> int:
    """The cores that Spark has now: its default parallelism, also through Spark Connect. Without Spark, the threads of
    this process."""
    if spark is None:
        return THREADS
    # Spark Connect has no `defaultParallelism`; a plan tells it without a job
    plan = spark.sql("EXPLAIN SELECT * FROM range(1)").collect()[0][0]
    splits = _SPLITS.search(plan)
    return int(splits.group(1)) if splits else THREADS
