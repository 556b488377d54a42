"""The settings that a profile requires, looked at before anything starts."""

from __future__ import annotations

from spark_jobs.config import ENVIRONMENT_PREFIX, Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.settings.sources import REQUIRED


def expect_complete(settings: Settings, *, airflow: bool) -> None:
    """Refuse settings without a value that their profile has no fitting default for.

    Raises:
        ConfigurationError: such settings are missing; the fact `missing` has their names.
    """
    needed = [name for name in REQUIRED[settings.profile] if airflow or not name.startswith("airflow_")]
    missing = [name for name in needed if name not in settings.model_fields_set]
    if missing:
        raise ConfigurationError(
            expected=f"with the profile {settings.profile}: values for {', '.join(needed)}",
            found=f"none for {', '.join(missing)}",
            consequence="nothing was started",
            next_step="set them in tidemark.toml, or in the environment as"
            f" {', '.join(f'{ENVIRONMENT_PREFIX}{name.upper()}' for name in missing)}",
            missing=missing,
        )
