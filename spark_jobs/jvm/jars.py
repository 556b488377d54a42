"""The jars that Spark needs beyond its own: their pins, their download, and the check of their content.

`jars.lock` pins every jar that Delta needs and pyspark does not have. Delta's other dependencies (Parquet, Hadoop,
zstd, …) are in pyspark, in the versions that Spark was tested with. `jars-s3.lock` does the same for a lake on S3,
`jars-postgresql.lock` for a catalog in PostgreSQL and for sources that read tables, `jars-kafka.lock` for those that
read topics, and `jars-lineage.lock` for lineage; other installations do not need these. `jars-scalafmt.lock` is for
those who change the Scala code. Ivy, which is in pyspark, downloads the jars during set-up. Nothing is resolved or
downloaded at run time.

    python -m spark_jobs.jvm.jars                # what `make setup` calls
    python -m spark_jobs.jvm.jars postgresql     # what `make setup-postgresql` calls
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pyspark

from spark_jobs.config import IS_CHECKOUT, Settings, load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jvm.errors import JarsMissing
from spark_jobs.jvm.java import find_java
from spark_jobs.jvm.scala_code import guard_jar, topics_jar
from spark_jobs.s3 import is_s3


@dataclass(frozen=True, slots=True)
class Jar:
    """A pinned jar: its SHA-256 in hexadecimal, and its Maven coordinates."""

    sha256: str
    organisation: str
    name: str
    revision: str

    @property
    def file_name(self) -> str:
        """The name that Maven gives the file."""
        return f"{self.name}-{self.revision}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """A set of jars that are needed together.

    Args:
        lock: the name of the file beside this one that pins them.
        subfolder: the subfolder of the jars folder that has them; "" for the jars folder itself.
        target: the target of `make` that fetches them.
    """

    lock: str
    subfolder: str
    target: str

    def pinned_jars(self) -> list[Jar]:
        """The jars that the lock pins."""
        lines = (Path(__file__).parent / self.lock).read_text().splitlines()
        return [Jar(*line.split()) for line in lines if line and not line.startswith("#")]

    def folder(self, jars: Path) -> Path:
        """The folder of this set, within the jars folder."""
        return jars / self.subfolder

    def wrong(self, jars: Path) -> list[str]:
        """The names of the jars that are missing from their folder or differ from their pin."""
        folder = self.folder(jars)
        return [jar.file_name for jar in self.pinned_jars() if _sha256(folder / jar.file_name) != jar.sha256]

    def is_there(self, settings: Settings) -> bool:
        """True if all jars of the set have been fetched. Their content is not checked."""
        return all((self.folder(settings.jars) / jar.file_name).exists() for jar in self.pinned_jars())

    def files(self, settings: Settings) -> list[Path]:
        """The paths of the jars, sorted. The files are not read, so their content is not checked.

        Raises:
            JarsMissing: a jar is not in its folder.
        """
        files = sorted(self.folder(settings.jars) / jar.file_name for jar in self.pinned_jars())
        if missing := [file.name for file in files if not file.exists()]:
            raise self._jars_missing(settings, f"no {', '.join(missing)} in {self.folder(settings.jars)}", missing)
        return files

    def fetch(self, settings: Settings) -> bool:
        """Download the jars into their folder, and return False if they were there. Other jars in it are removed.

        Raises:
            JavaUnusable: there is no Java to run Ivy with.
            JarsMissing: a jar could not be downloaded, or is not the pinned one.
        """
        folder = self.folder(settings.jars)
        folder.mkdir(parents=True, exist_ok=True)
        wanted = {jar.file_name for jar in self.pinned_jars()}
        for other in folder.glob("*.jar"):
            if other.name not in wanted:
                other.unlink()
        if not self.wrong(settings.jars):
            return False
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            answer = _run_ivy(Path(scratch), self.pinned_jars())
            for name in wanted:
                if (downloaded := Path(scratch) / "jars" / name).exists():
                    downloaded.replace(folder / name)
        if wrong := self.wrong(settings.jars):
            for name in wrong:
                (folder / name).unlink(missing_ok=True)
            raise self._jars_missing(
                settings, f"{', '.join(wrong)} missing or different; Ivy said: {answer[-600:]}", wrong
            )
        return True

    def _jars_missing(self, settings: Settings, problem: str, names: list[str]) -> JarsMissing:
        # an installed package has no Makefile
        module = f"{sys.executable} -m spark_jobs.jvm.jars {self.subfolder}".strip()
        command = f"make {self.target}" if IS_CHECKOUT else module
        return JarsMissing(
            expected=f"every jar of spark_jobs/jvm/{self.lock} with its SHA-256",
            found=problem,
            next_step=f"run `{command}`, which needs the network (Maven Central), or set TIDEMARK_JARS",
            folder=str(self.folder(settings.jars)),
            jars=names,
        )


DELTA = JarSet("jars.lock", "", "setup")
S3 = JarSet("jars-s3.lock", "s3", "setup-s3")
POSTGRESQL = JarSet("jars-postgresql.lock", "postgresql", "setup-postgresql")
KAFKA = JarSet("jars-kafka.lock", "kafka", "setup-kafka")
LINEAGE = JarSet("jars-lineage.lock", "lineage", "setup-lineage")
SCALAFMT = JarSet("jars-scalafmt.lock", "scalafmt", "lint")
OPTIONAL = {"s3": S3, "postgresql": POSTGRESQL, "kafka": KAFKA, "lineage": LINEAGE}
"""The sets of jars that only some installations need, by the names that `main` takes."""
TOOLS = {"scalafmt": SCALAFMT}
"""The sets of jars that only a checkout needs, by the names that `main` takes."""


def needed_sets(settings: Settings) -> list[JarSet]:
    """The sets of jars that an installation needs: Delta's, those that its settings require, and those for tables and
    topics if they were fetched."""
    fetched = [jars for jars in (POSTGRESQL, KAFKA) if jars.is_there(settings)]
    needed = [
        *([S3] if is_s3(settings.lake) else []),
        *([LINEAGE] if settings.lineage else []),
        *([POSTGRESQL] if asks_for_postgresql(settings) else []),
    ]
    return list(dict.fromkeys([DELTA, *needed, *fetched]))


def asks_for_postgresql(settings: Settings) -> bool:
    """True if the catalog is in PostgreSQL, whose driver is then needed."""
    return (settings.metastore_url or "").startswith("jdbc:postgresql:")


def further_jars(settings: Settings) -> list[Path]:
    """The jars beyond the pinned ones: the JDBC drivers of the settings, and the function that asks Kafka for offsets.

    Raises:
        JarsMissing: a path in TIDEMARK_JDBC_JARS is not a file.
    """
    drivers = [Path(place).expanduser() for place in settings.jdbc_jars.split(os.pathsep) if place]
    if missing := [str(driver) for driver in drivers if not driver.is_file()]:
        raise JarsMissing(
            expected="the JDBC drivers that TIDEMARK_JDBC_JARS names",
            found=f"no file {', '.join(missing)}",
            next_step=f"correct it: paths of jars, with {os.pathsep!r} between them",
            folder=str(Path(missing[0]).parent),
            jars=missing,
        )
    return [*drivers, *([topics_jar(settings, KAFKA.folder(settings.jars))] if KAFKA.is_there(settings) else [])]


def _run_ivy(scratch: Path, jars: list[Jar]) -> str:
    """Make Ivy download the jars, without their dependencies; returns Ivy's output."""
    (scratch / "ivy.xml").write_text(_ivy_module(jars))
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [
        *(str(find_java().executable), f"-Divy.home={scratch / 'ivy'}", "-cp", str(ivy), "org.apache.ivy.Main"),
        # a bundle is a jar with a manifest for OSGi
        *("-ivy", str(scratch / "ivy.xml"), "-types", "jar", "bundle"),
        *("-retrieve", f"{scratch / 'jars'}/[artifact]-[revision].[ext]"),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


def _ivy_module(jars: list[Jar]) -> str:
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="tidemark", module="jars")
    ElementTree.SubElement(ElementTree.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for jar in jars:
        ElementTree.SubElement(
            dependencies,
            "dependency",
            {
                "org": jar.organisation,
                "name": jar.name,
                "rev": jar.revision,
                "transitive": "false",
                "conf": "default->default",
            },
        )
    return ElementTree.tostring(module, encoding="unicode")


def _sha256(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def main(names: list[str]) -> int:
    """Fetch the jars for the settings of the environment, compile the guard of SQL, and print the result.

    `names` are names in `OPTIONAL` or `TOOLS`: these sets are fetched even if they are not needed now. Returns the exit
    code."""
    settings = load_settings()
    by_name = OPTIONAL | TOOLS
    sets = list({**dict.fromkeys(needed_sets(settings)), **dict.fromkeys(by_name[name] for name in names)})
    try:
        for jars in sets:
            fetched = jars.fetch(settings)
            result = "downloaded to" if fetched else "in"
            sys.stdout.write(f"{len(jars.pinned_jars())} jars {result} {jars.folder(settings.jars)}\n")
        guard_jar(settings)
        further_jars(settings)
    except TidemarkError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
