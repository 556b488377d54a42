"""Tidemark's Scala code in Spark's JVM: the names of its classes, and the jars that it is compiled into.

The sources are in `scala`, in a folder for each concern:

- `guard`: rules for the statements of logins, their limits of time and memory, and the functions that they may call
- `connections`: the lake server with its logins, sessions and sockets
- `reads`: notes of the reads of states by SQL
- `seats`: the order in which readers' statements work beside a run
- `log_stores`: the stores of Delta's log on local file systems and on S3
- `tables`: scans and overwrites of small tables without queries about their files, and views that are replaced in one
  change
- `catalog`: Hive's tables in the database of a catalog, made before Hive uses it
- `topics`: the offsets of Kafka's topics, in a jar of their own, since they need Kafka's client

The packages in the sources are those of Spark whose classes they extend: Spark lets nobody else see them.

`make setup` compiles the sources (about 25 s, no JDK: the compiler is among Spark's jars), or `tidemark up` if that was
left out. A jar's name contains a hash of its sources and of Spark's version, so an old jar is never used with other
ones.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from spark_jobs.config import Settings
from spark_jobs.jvm.errors import GuardBroken
from spark_jobs.jvm.java import find_java

PACKAGE = "org.apache.spark.sql.hive.thriftserver.tidemark"
SERVER_CLASS = f"{PACKAGE}.LakeServer"
EXTENSION = f"{PACKAGE}.Guard"
SCANS = "org.apache.spark.sql.delta.tidemark.SmallScans"
"""The extension of Spark that prepares scans of small tables in memory. It must come before Delta's extension."""
OVERWRITES = "org.apache.spark.sql.delta.tidemark.SmallOverwrites"
"""The extension of Spark that replaces the rows of a small table without queries about its files."""
VIEWS = f"{PACKAGE}.AtomicViews"
"""The extension of Spark that replaces a view in one change of the catalog."""
STATE_READS = f"{PACKAGE}.StateReads"
"""The listener of Spark that notes reads of states."""
LOG_STORE = f"{PACKAGE}.AtomicLog"
S3_LOG_STORE = f"{PACKAGE}.ConditionalLog"

CATALOG_TABLES = "tidemark.catalog.CatalogTables"
"""The program that makes Hive's tables in a catalog's database."""

SCALA = Path(__file__).parent / "scala"
"""The folder of the sources."""
_TOPICS = SCALA / "topics"
"""The sources of a jar of their own."""
TOPIC_OFFSETS = "tidemark.topics.TopicOffsets"
"""The class of the function that asks Kafka for offsets."""


def guard_jar(settings: Settings) -> Path:
    """The jar of all sources but `topics`, in the jars folder; it is compiled if it is missing.

    Raises:
        JavaUnusable: there is no Java to compile with.
        GuardBroken: the compiler refused the sources.
    """
    sources = [file for file in SCALA.rglob("*.scala") if file.parent != _TOPICS]
    return _compile_once(settings.jars / "guard", "tidemark-guard", sources, settings.jars)


def topics_jar(settings: Settings, kafka: Path) -> Path:
    """The jar of `topics`; it is compiled if it is missing.

    `kafka` is the folder with the jars of Kafka's client.

    Raises:
        JavaUnusable: there is no Java to compile with.
        GuardBroken: the compiler refused the sources.
    """
    return _compile_once(settings.jars / "topics", "tidemark-topics", list(_TOPICS.glob("*.scala")), kafka)


def _compile_once(folder: Path, prefix: str, sources: list[Path], beside: Path) -> Path:
    name = hashlib.sha256(pyspark.__version__.encode())
    for source in sorted(sources):
        name.update(source.read_bytes())
    jar = folder / f"{prefix}-{name.hexdigest()[:16]}.jar"
    if not jar.exists():
        _compile(jar, sources, beside)
    return jar


def _compile(jar: Path, sources: list[Path], beside: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    spark_jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        command = [
            *(str(find_java().executable), "-Xss4m", "-Dscala.usejavacp=true", "-cp", f"{spark_jars}/*:{beside}/*"),
            *("scala.tools.nsc.Main", "-nowarn", "-d", str(classes), *map(str, sources)),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise GuardBroken(
                expected="Tidemark's Scala code to compile",
                found=(answer.stdout + answer.stderr)[-2000:],
                consequence="the lake server does not start without it",
                next_step="run `make setup`; where the sources were edited, correct them",
            )
        packed = shutil.make_archive(str(Path(scratch) / "packed"), "zip", classes)
        Path(packed).replace(jar)
    for older in jar.parent.glob("*.jar"):
        if older != jar:
            older.unlink()
