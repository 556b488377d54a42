"""Settings of Spark and of the cluster that it works on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from spark_jobs.settings.sources import SettingsOfSources

_SIZE = r"^[1-9][0-9]*[mg]$"


class ClusterSettings(SettingsOfSources):
    """The knobs of Spark's master, its executors, and the catalog; see each field for its unit and reason."""

    # --- Spark and its cluster --------------------------------------------------------------------------------------
    master: str = Field(default="local[*,4]", description="Spark's master URL; embedded by default")
    """Spark tries a task four times, as on a cluster: the first tries after the death of Python's daemon fail."""
    spark_secret: SecretStr | None = Field(default=None, description="spark.authenticate.secret of a standalone master")
    spark_conf: dict[str, str] = Field(
        default={},
        description="further settings of Spark, over Tidemark's own, as a JSON object of texts such as"
        ' {"spark.hadoop.fs.s3a.connection.maximum": "200"}; keys of S3 belong in the environment (AWS_…), which no'
        " file keeps",
    )
    shuffle_partitions: int = Field(
        default=4, ge=1, description="tasks per shuffle; Spark's 200 cost more than the work itself on one machine"
    )
    process_memory: str | None = Field(
        default=None,
        pattern=_SIZE,
        description="memory for the rows of a stage in a command or one of Airflow's tasks, such as 512m; Spark's tasks"
        " do what needs more; by default, with a local master an eighth of the machine's memory and at least 1g, on a"
        " cluster 32m",
    )
    adaptive: bool = Field(
        default=False,
        description="adaptive execution in the stages: it runs every shuffle as a job of its own, which costs a small"
        " run half its time; switch it on where partitions are many and uneven",
    )
    snapshot_partitions: int = Field(
        default=1, ge=1, description="tasks that read a Delta log; Delta's 50 make counting 1,000 rows take 10 s"
    )
    metastore_url: str | None = Field(
        default=None,
        description="JDBC URL of the catalog's database, which may be empty; by default an embedded Derby",
    )
    driver_host: str | None = Field(
        default=None,
        description="the name or address at which executors reach the lake server; by default `bind_address`, or if"
        " that is all interfaces, the address from which this machine reaches the master",
    )
    executor_python: str | None = Field(
        default=None,
        description="the Python interpreter on the executors' machines; by default the path of the lake server's own",
    )
    executor_memory: str | None = Field(
        default=None, pattern=_SIZE, description="heap of an executor's JVM, such as 4g; by default Spark's 1g"
    )
    executor_overhead: str | None = Field(
        default=None,
        pattern=_SIZE,
        description="memory of an executor beside its heap, for Python and Arrow, on YARN and Kubernetes; by default"
        " Spark's tenth of the heap",
    )
    executor_cores: int | None = Field(
        default=None, ge=1, description="cores of an executor; by default all of a standalone worker, else Spark's 1"
    )
    executor_patience_s: float = Field(
        default=120.0,
        gt=0,
        description="seconds that work may wait while the lake server has no executor, until it is started again;"
        " more where machines are started on demand",
    )
    executor_keys: Literal["driver", "machine"] = Field(
        default="driver",
        description="whose keys of S3 executors use: those of the lake server (AWS_…), which Spark hands to them, or"
        " what their machine has, such as a role",
    )
