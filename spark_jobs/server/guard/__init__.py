"""Tidemark's own code in Spark's JVM, as Scala sources beside this file.

They contain the guard of SQL, and the stores of Delta's log on local file systems and on S3. Further parts scan small
tables without a query of their own, and replace views in one change. The compiler among Spark's jars compiles all into
a jar.

`make setup` compiles them (about 25 s, no JDK), or `tidemark up` if that was left out. The jar's name contains a hash
of the sources and of Spark's version, so an old jar is never used with other ones.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from spark_jobs.config import Settings
from spark_jobs.server.errors import GuardBroken
from spark_jobs.server.java import find_java

PACKAGE = "org.apache.spark.sql.hive.thriftserver.tidemark"
SERVER_CLASS = f"{PACKAGE}.LakeServer"
EXTENSION = f"{PACKAGE}.Guard"
SCANS = "org.apache.spark.sql.delta.tidemark.SmallScans"
"""The extension of Spark that prepares scans of small tables in memory. It must come before Delta's extension."""
VIEWS = f"{PACKAGE}.AtomicViews"
"""The extension of Spark that replaces a view in one change of the catalog."""
LOG_STORE = f"{PACKAGE}.AtomicLog"
S3_LOG_STORE = f"{PACKAGE}.ConditionalLog"

_SOURCES = sorted(Path(__file__).parent.glob("*.scala"))
_OF_TOPICS = sorted((Path(__file__).parent / "topics").glob("*.scala"))
TOPIC_OFFSETS = "tidemark.topics.TopicOffsets"
"""The class of the function that asks Kafka for offsets."""


def guard_jar(settings: Settings) -> Path:
    """The jar of these sources for this Spark, in the jars folder; it is compiled if it is missing.

    Raises:
        JavaUnusable: there is no Java to compile with.
        GuardBroken: the compiler refused the sources.
    """
    return _compiled(settings.jars / "guard", "tidemark-guard", _SOURCES, settings.jars)


def topics_jar(settings: Settings, kafka: Path) -> Path:
    """The jar of the function that asks Kafka for offsets; it is compiled if it is missing.

    `kafka` is the folder with the jars of Kafka's client.

    Raises:
        JavaUnusable: there is no Java to compile with.
        GuardBroken: the compiler refused the sources.
    """
    return _compiled(settings.jars / "topics", "tidemark-topics", _OF_TOPICS, kafka)


def _compiled(folder: Path, prefix: str, sources: list[Path], beside: Path) -> Path:
    name = hashlib.sha256(pyspark.__version__.encode())
    for source in sources:
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
                expected="the guard of SQL, and what asks Kafka for offsets, to compile",
                found=(answer.stdout + answer.stderr)[-2000:],
                consequence="the lake server does not start without it",
                next_step="run `make setup`; where the sources were edited, correct them",
            )
        packed = shutil.make_archive(str(Path(scratch) / "packed"), "zip", classes)
        Path(packed).replace(jar)
    for older in jar.parent.glob("*.jar"):
        if older != jar:
            older.unlink()
