"""Delta's jars: which, how they get here, and proof that they are the right ones.

`jars.lock` pins every jar that Delta needs and pyspark does not bring: what else Delta depends on (Parquet, Hadoop,
zstd, …) is in pyspark, in the versions that Spark was tested with. The jars are downloaded by Ivy, which is in pyspark,
in set-up; nothing is resolved or downloaded at run time.

    python -m spark_jobs.server.jars        # what `make setup` calls
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pyspark

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.server.errors import JarsMissing
from spark_jobs.server.guard import guard_jar
from spark_jobs.server.java import find_java

LOCK = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: its SHA-256 in hexadecimal, and its Maven coordinates."""

    sha256: str
    organisation: str
    name: str
    revision: str

    @property
    def file_name(self) -> str:
        """The name that Maven gives the file."""
        return f"{self.name}-{self.revision}.jar"


def pinned() -> list[Jar]:
    """The jars of `jars.lock`."""
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return [Jar(*line.split()) for line in lines]


def wrong_jars(folder: Path) -> list[str]:
    """Names of pinned jars that are missing from the folder or differ from their pin."""
    return [jar.file_name for jar in pinned() if _sha256(folder / jar.file_name) != jar.sha256]


def fetch(settings: Settings) -> bool:
    """Bring the pinned jars into the jars folder; False if they were there. Other jars in it are removed.

    Raises:
        JavaUnusable: there is no Java to run Ivy with.
        JarsMissing: a jar could not be downloaded, or is not the pinned one.
    """
    settings.jars.mkdir(parents=True, exist_ok=True)
    wanted = {jar.file_name for jar in pinned()}
    for other in settings.jars.glob("*.jar"):
        if other.name not in wanted:
            other.unlink()
    if not wrong_jars(settings.jars):
        return False
    with tempfile.TemporaryDirectory(dir=settings.jars) as scratch:
        answer = _run_ivy(Path(scratch))
        for jar in pinned():
            if (downloaded := Path(scratch) / "jars" / jar.file_name).exists():
                downloaded.replace(settings.jars / jar.file_name)
    if wrong := wrong_jars(settings.jars):
        for name in wrong:
            (settings.jars / name).unlink(missing_ok=True)
        raise JarsMissing(
            expected="every jar of spark_jobs/server/jars.lock with its SHA-256",
            found=f"{', '.join(wrong)} missing or different; Ivy said: {answer[-600:]}",
            next_step="check the network (Maven Central), then run `make setup` again",
            folder=str(settings.jars),
            jars=wrong,
        )
    return True


def _run_ivy(scratch: Path) -> str:
    """Let Ivy download the pinned jars, nothing that they depend on; returns what it said."""
    (scratch / "ivy.xml").write_text(_ivy_module())
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [
        *(str(find_java().executable), f"-Divy.home={scratch / 'ivy'}", "-cp", str(ivy), "org.apache.ivy.Main"),
        *("-ivy", str(scratch / "ivy.xml"), "-types", "jar"),
        *("-retrieve", f"{scratch / 'jars'}/[artifact]-[revision].[ext]"),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


def _ivy_module() -> str:
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="tidemark", module="jars")
    ElementTree.SubElement(ElementTree.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for jar in pinned():
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


def main() -> int:
    """Fetch the jars for the settings of the environment, compile the guard of SQL, and say so."""
    settings = load_settings()
    try:
        fetched = fetch(settings)
        guard_jar(settings)
    except TidemarkError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    sys.stdout.write(f"{len(pinned())} jars {'downloaded to' if fetched else 'in'} {settings.jars}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
