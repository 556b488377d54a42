"""The wheel in an empty environment, without the checkout: what `docs/howto/install.md` promises of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_jobs.portal.assets import ASSETS
from spark_jobs.projects.examples import examples
from tests.effort import share_of
from tests.installations import CHECKOUT, TIDEMARK

pytestmark = [pytest.mark.slow, pytest.mark.turns(together=True)]
UV = shutil.which("uv") or str(CHECKOUT / ".uv" / "bin" / "uv")


def made(*command: str, **environment: str) -> str:
    """The output of a command that must succeed; first without the network, since `make setup` filled uv's cache.

    A session that another test opened has made this process's umask 077. What uv builds is kept in its cache, from
    which later environments are linked: with that umask, other users could not read them.
    """
    for offline in ("true", "false"):
        inherited = {**os.environ, "UV_SYSTEM_CERTS": "true", "UV_OFFLINE": offline, **environment}
        done = subprocess.run(
            command, cwd=CHECKOUT, env=inherited, capture_output=True, text=True, check=False, umask=0o022
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel, and a folder in which its commands run."""

    folder: Path
    work: Path

    def install(self, what: str) -> None:
        """Install a requirement with the versions of the lock."""
        made(UV, "pip", "install", "-c", "requirements.lock", what, VIRTUAL_ENV=str(self.folder))

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """The output of a command of the environment that must succeed."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "PYTHON", "VIRTUAL_ENV"))}
        inherited["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            command, cwd=cwd or self.work, env=inherited, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def has(self, module: str) -> bool:
        """True if the environment has a module."""
        found = f"import importlib.util as u; print(u.find_spec({module!r}) is not None)"
        return self.run("python", "-c", found).strip() == "True"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    made(UV, "build", "--wheel", "--quiet", "--out-dir", str(folder), ".")
    (path,) = folder.glob("tidemark-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    made(UV, "venv", "--quiet", "--clear", "--python", str(TIDEMARK.with_name("python")), str(folder))
    environment = Environment(folder, tmp_path_factory.mktemp("work"))
    environment.install(str(wheel))
    return environment


def test_the_wheel_has_what_ships_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for folder in ("dags", "dbt", "examples"):
        of_checkout = {
            f"spark_jobs/{path.relative_to(CHECKOUT).as_posix()}"
            for path in (CHECKOUT / folder).rglob("*")
            if path.is_file() and not {"__pycache__", "target", "logs"} & {*path.parts}
        }
        assert of_checkout <= {*names}
    assert "spark_jobs/docs/glossary.md" in names
    of_pages = {f"spark_jobs/{path.relative_to(CHECKOUT / 'spark_jobs').as_posix()}" for path in ASSETS.values()}
    assert of_pages <= {*names}
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_the_environment_has_the_wheel_alone(environment: Environment) -> None:
    place = environment.run("python", "-c", "import spark_jobs; print(spark_jobs.__file__)").strip()
    assert Path(place).is_relative_to(environment.folder)
    assert not environment.has("airflow")
    assert not environment.has("dbt")


@pytest.mark.parametrize("example", share_of([*examples()])[:1])
def test_a_new_project_is_checked_tested_and_tried(environment: Environment, example: str) -> None:
    environment.run("tidemark", "new", example, "--example", example)
    project, source = environment.work / example, examples()[example].source
    assert f"right: {source}" in environment.run("tidemark", "check", cwd=project)
    # each of the first runs in an environment compiles kernels
    tested = json.loads(environment.run("tidemark", "test", "--json", cwd=project))
    assert all(test["passed"] for test in tested["tests"])
    tried = json.loads(environment.run("tidemark", "try", "--source", source, "--json", cwd=project))
    assert [drop["drop"] for drop in tried["drops"]] == examples()[example].drops


def test_files_of_ones_own_are_guessed_and_kept(environment: Environment) -> None:
    (environment.work / "readings").mkdir()
    path = environment.work / "readings" / "2024-03-01.csv"
    path.write_text("id;meter;at;load\n1;north;01/03/2024 09:10;5,5\n2;north;13/03/2024 09:50;7,5\n")
    (environment.work / "sources").mkdir()
    said = environment.run("tidemark", "init", "sources", "--from", str(path))
    assert "day before month: 1 of 2 dates" in said
    assert "right: readings" in environment.run("tidemark", "check")
    assert "2 rows" in environment.run("tidemark", "try", str(path), "--keep", "kept")
    assert (environment.work / "kept" / "pages" / "index.html").is_file()


def test_marts_of_a_project_parse_with_the_extra_and_without_airflow(environment: Environment, wheel: Path) -> None:
    environment.install(f"tidemark[marts,sample] @ {wheel.as_uri()}")
    assert environment.has("dbt")
    assert not environment.has("airflow")
    environment.run("tidemark", "new", "shop", "--example", "orders")
    laid_out = (
        "from spark_jobs.config import load_settings; from spark_jobs.publish.project import PROJECT, laid_out\n"
        "print(laid_out(load_settings()).folder, PROJECT)"
    )
    shop = environment.work / "shop"
    folder, profiles = environment.run("python", "-c", laid_out, cwd=shop).split()
    assert Path(profiles).is_relative_to(environment.folder)
    listed = environment.run(
        "env", "DBT_ENV_SECRET_TIDEMARK_PASSWORD=none", "dbt", "--quiet", "ls", "--project-dir", folder,
        "--profiles-dir", profiles, "--resource-type", "model", "--output", "name",
        cwd=shop,
    )  # fmt: skip
    assert "shop_revenue" in listed.split()
