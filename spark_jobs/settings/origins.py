"""The origin of each setting: where its present value comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource

from spark_jobs.settings.file import ENVIRONMENT_PREFIX, TABLE
from spark_jobs.settings.sources import FileSource, ProfileDefaults, SecretFiles, SettingsOfSources, secret_file

DEFAULT = "default"


def read_origins(settings: type[SettingsOfSources]) -> dict[str, str]:
    """The origin of each setting: an environment variable, a file, a profile, or DEFAULT. The settings must be right.

    The settings of Spark are those of all origins together, so they may have several, the most important one first.
    """
    file, recorder = FileSource(settings), _Recorder(settings)
    sources = (EnvSettingsSource(settings), file, SecretFiles(settings), ProfileDefaults(settings), recorder)
    build: Callable[..., SettingsOfSources] = settings
    present = build(_build_sources=(sources, {})).model_dump(include={"profile", "secrets"})
    origins = {}
    for name in settings.model_fields:
        of_source = {
            "EnvSettingsSource": f"{ENVIRONMENT_PREFIX}{name.upper()}",
            "FileSource": str(file.file),
            "SecretFiles": str(secret_file(present["secrets"] or Path(), name)),
            "ProfileDefaults": f"profile {present['profile']}",
        }
        places = [of_source[source] for source, values in recorder.values.items() if name in values]
        origins[name] = ", ".join(places if name == TABLE else places[:1]) or DEFAULT
    return origins


class _Recorder(PydanticBaseSettingsSource):
    """A last source without settings, which keeps the values of each source before it, by the name of its class."""

    values: Mapping[str, Mapping[str, Any]] = {}

    def __call__(self) -> dict[str, Any]:
        self.values = dict(self.settings_sources_data)
        return {}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False
