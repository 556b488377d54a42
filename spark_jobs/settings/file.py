"""The settings file, `tidemark.toml`: how it is located and read.

The environment variable TIDEMARK_CONFIG names the file. Without the variable it is the first `tidemark.toml` in the
working folder and its parents. With an empty variable there is no file: so a server's processes, which have all
settings in their environment, do not depend on the folder in which they run.

The command line reads two settings before it imports pydantic, so this module imports the standard library alone.
"""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path
from typing import Any

from spark_jobs.errors import ConfigurationError

NAME = "tidemark.toml"
ENVIRONMENT_PREFIX = "TIDEMARK_"
STORE_PATIENCE_S = 120.0
"""The default of the setting `store_patience_s`, which code reads by `early_setting`, too."""
VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
CHECKOUT = Path(__file__).resolve().parents[2]
"""The folder that contains `spark_jobs`: a checkout, or `site-packages` of an installed package."""
IS_CHECKOUT = (CHECKOUT / "pyproject.toml").is_file()

PATHS = (
    *("home", "lake", "landing", "jars", "sources", "expectations", "dbt", "plugins", "connections", "dags"),
    *("secrets", "connect_socket", "tls_keystore", "lineage", "backup"),
)
"""The settings that are a path, or a path or a URI."""
PATH_LISTS = ("jdbc_jars",)
"""The settings that are paths with a colon between them."""
TABLE = "spark_conf"
"""The only setting that is a table; its keys have dots."""


def find_settings_file() -> Path | None:
    """The path of the settings file; None if there is none.

    Raises:
        ConfigurationError: somebody else can write the file, and TIDEMARK_CONFIG does not name it.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(absolute(named)) if named else None
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return None
    # not `Path.is_file`, which raises an error below a folder that this user may not enter
    file = next((each / NAME for each in (folder, *folder.parents) if os.path.isfile(each / NAME)), None)  # noqa: PTH113
    if file is not None:
        _expect_trusted(file)
    return file


def read_settings_file(file: Path) -> dict[str, Any]:
    """The settings of a file by key. Paths are absolute; relative ones in the file are below its folder.

    Raises:
        ConfigurationError: the file can't be read, or is no TOML.
    """
    try:
        status = file.stat()
        return _read(file, (status.st_mtime_ns, status.st_size, status.st_ino))
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise _unusable(file, str(error)) from None


def early_setting(name: str) -> str | None:
    """A setting of the environment or the file as text, for code that does not load `Settings`; None if neither has it.

    Raises:
        ConfigurationError: the file can't be used.
    """
    value = os.environ.get(f"{ENVIRONMENT_PREFIX}{name.upper()}")
    if value is not None:
        return value
    file = find_settings_file()
    value = read_settings_file(file).get(name) if file else None
    return str(value) if isinstance(value, (str, int, float)) else None


def project_folder() -> Path:
    """The folder that has data, jars and sources by default: the checkout, or for an installed package the folder of
    the settings file, or else the working folder."""
    if IS_CHECKOUT:
        return CHECKOUT
    file = find_settings_file()
    return file.parent if file else Path.cwd()


def default_home() -> Path:
    """The data directory of an installation whose settings name none."""
    return project_folder() / ".tidemark"


def absolute(text: str, folder: Path = Path()) -> str:
    """A path made absolute, where a relative one is below `folder`, by default the working folder. A URI stays as it
    is, without a slash at its end; symbolic links stay, as users named them."""
    if "://" in text and not text.startswith("file:"):
        return text.rstrip("/")
    path = Path(text.removeprefix("file://").removeprefix("file:")).expanduser()
    return os.path.abspath(folder / path)  # noqa: PTH100


def absolute_list(text: str, folder: Path = Path()) -> str:
    """Paths with a colon between them, made absolute."""
    return ":".join(absolute(path, folder) for path in text.split(":") if path)


@functools.lru_cache(maxsize=4)
def _read(file: Path, state: tuple[int, ...]) -> dict[str, Any]:
    """The settings of a file whose `state` (time, size, inode) the cache compares."""
    import tomllib  # 5 ms, for those who have a file

    values = tomllib.loads(file.read_text(encoding="utf-8"))
    for names, make_absolute in ((PATHS, absolute), (PATH_LISTS, absolute_list)):
        for name in names:
            if isinstance(values.get(name), str):
                values[name] = make_absolute(values[name], file.parent)
    if isinstance(values.get(TABLE), dict):
        values[TABLE] = dict(_flatten(values[TABLE]))
    return values


def _flatten(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The keys of a table with dots, and values as texts: in TOML `spark.executor.cores = 4` is a table of tables."""
    pairs: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            pairs += _flatten(value, f"{prefix}{name}.")
        else:
            plain = isinstance(value, bool | int | float)
            pairs.append((f"{prefix}{name}", str(value).lower() if plain else value))
    return pairs


def _expect_trusted(file: Path) -> None:
    """Refuse a file that another user wrote, or anybody may write: settings name code that runs."""
    status = file.stat()
    if status.st_uid in (os.getuid(), 0) and not status.st_mode & stat.S_IWOTH:
        return
    raise ConfigurationError(
        expected=f"{file} to be yours or root's, and not writable by everybody",
        found=f"owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):o}; you are {os.getuid()}",
        consequence="its settings, which name code that runs, were not read",
        next_step=f"if you trust the file, name it: export {VARIABLE}={file}",
    )


def _unusable(file: Path, finding: str) -> ConfigurationError:
    return ConfigurationError(
        expected=f"the settings file {file} to be TOML that can be read",
        found=finding,
        next_step=f"correct it, or name another one with {VARIABLE}",
        file=str(file),
    )
