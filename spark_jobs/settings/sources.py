"""The sources of settings beside the environment: the settings file, a folder of secrets, and profiles."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    TomlConfigSettingsSource,
)

from spark_jobs.settings.file import ENVIRONMENT_PREFIX, TABLE, find_settings_file, read_settings_file
from spark_jobs.settings.secret_texts import HIDDEN, hide_secrets

SECRETS = ("token", "tls_password", "smtp", "spark_secret")
"""Secret settings, which are left out of files and lists of settings."""
IN_SECRET_FILES = (*SECRETS, "metastore_url", "airflow_database_url")
"""The settings that a folder of secrets may have: secrets, and URLs that may contain one."""
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "embedded": {},
    "cluster": {"shuffle_partitions": 64},
}
"""Profile -> its defaults, where they differ from those of `Settings`."""
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "embedded": (),
    "cluster": ("master", "bind_address", "lake", "landing", "metastore_url", "airflow_database_url"),
}
"""Profile -> the settings that have no default which could fit; see `spark_jobs.server.profile`."""


class FileSource(TomlConfigSettingsSource):
    """The settings of the settings file. Raises ConfigurationError if the file can't be used."""

    def __init__(self, settings: type[BaseSettings]) -> None:
        self.file = find_settings_file()
        # a named file that is missing is an error here; the library would leave it out
        values = {} if self.file is None else read_settings_file(self.file)
        # the library would take `Heap` for `heap`; `find_file_problems` refuses it
        self.values = {name: value for name, value in values.items() if name in settings.model_fields}
        super().__init__(settings, toml_file=self.file)

    def _read_file(self, path: Any) -> dict[str, Any]:
        return self.values


class SecretFiles(SecretsSettingsSource):
    """Secrets of the folder that the setting `secrets` names: the files `tidemark_<name>`, as Docker mounts them."""

    def __call__(self) -> dict[str, Any]:
        """The secrets by setting; none where the folder's validator will find a fault."""
        folder = self.current_state.get("secrets")
        self.secrets_dir = None if folder is None or find_secrets_fault(Path(str(folder))) else folder
        return super().__call__()

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The content of the setting's file, if the setting may have one."""
        if field_name not in IN_SECRET_FILES:
            return None, field_name, False
        return super().get_field_value(field, field_name)


class ProfileDefaults(PydanticBaseSettingsSource):
    """The defaults of the profile that the sources before this one name."""

    def __call__(self) -> dict[str, Any]:
        """The defaults by setting; none for a profile that does not exist, which validation refuses."""
        return dict(PROFILES.get(str(self.current_state.get("profile", "embedded")), {}))

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not used: the defaults come as a whole."""
        return None, field_name, False


class SettingsOfSources(BaseSettings):
    """Settings of the arguments, the environment, the settings file, a folder of secrets and a profile."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources of settings, the most important one first."""
        return init_settings, env_settings, FileSource(cls), SecretFiles(cls), ProfileDefaults(cls)


def secret_file(folder: Path, name: str) -> Path:
    """The file of a secret setting in a folder of secrets."""
    return folder / f"{ENVIRONMENT_PREFIX}{name}".lower()


def find_secrets_fault(folder: Path) -> str | None:
    """The fault of a folder of secrets, as a text; None if it can be used."""
    folder = folder.expanduser().resolve()
    faults = []
    try:
        for file in sorted(folder.iterdir()):
            name = file.name.lower().removeprefix(ENVIRONMENT_PREFIX.lower())
            if name == file.name.lower():
                continue
            if name not in IN_SECRET_FILES:
                faults.append(f"{file.name}, which is no secret setting{_closest(name, IN_SECRET_FILES)}")
            elif folder not in file.resolve().parents:
                faults.append(f"{file.name}, which leads out of the folder")
            else:
                file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"expected a folder of texts that can be read, found {error}"
    return f"has {'; '.join(faults)}" if faults else None


def find_file_problems(names: Collection[str]) -> list[str]:
    """The keys of the settings file that are no settings (`names`), and those that have a secret in the file."""
    file = find_settings_file()
    values = {} if file is None else read_settings_file(file)
    problems = []
    for key, value in values.items():
        if isinstance(value, dict) and key != TABLE:
            problems.append(f"the table {key} in {file} (only {TABLE} is a table; other settings have no table)")
        elif key not in names:
            problems.append(f"{key} in {file} (expected the name of a setting{_closest(key, names)})")
        elif key in SECRETS or hide_secrets(value) != value:
            in_folder = (
                f", or into {secret_file(Path(), key)} in the folder `secrets`" if key in IN_SECRET_FILES else ""
            )
            problems.append(
                f"{key} in {file} (expected no password or key, since repositories and backups have this file;"
                f" put it into {ENVIRONMENT_PREFIX}{key.upper()}{in_folder})"
            )
    table = values.get(TABLE)
    inside = [key for key in table if key in names] if isinstance(table, dict) else []
    problems += [f"{TABLE}.{key} in {file} (expected {key} above the line [{TABLE}])" for key in inside]
    return problems


def describe_problem(problem: Mapping[str, Any], overrides: Mapping[str, Any]) -> str:
    """A problem of pydantic as a text: where the value comes from, the value, and the values accepted."""
    name, key = str(problem["loc"][0]), str(problem["loc"][-1])
    # the key of a setting of Spark may be that of a secret
    texts = hide_secrets({key if name == TABLE else "": repr(problem["input"])})
    value = HIDDEN if name in SECRETS else next(iter(texts.values()))
    message = problem["msg"].removeprefix("Value error, ")
    variable, file = f"{ENVIRONMENT_PREFIX}{'_'.join(map(str, problem['loc'])).upper()}", find_settings_file()
    named_here = name in overrides or f"{ENVIRONMENT_PREFIX}{name}".upper() in {each.upper() for each in os.environ}
    if file is None or named_here or name not in read_settings_file(file):
        return f"{variable}={value} ({message})"
    return f"{'.'.join(map(str, problem['loc']))} = {value} in {file} ({message})"


def _closest(name: str, names: Collection[str]) -> str:
    import difflib  # 3 ms, for those whose settings are wrong

    near = difflib.get_close_matches(name.lower(), list(names), n=1)
    return f"; the closest is {near[0]}" if near else ""
