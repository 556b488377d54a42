"""The settings that a backup keeps and a restore shows: those of a home, without passwords within them."""

from __future__ import annotations

from typing import Any

from spark_jobs.config import Settings
from spark_jobs.settings.secret_texts import hide_secrets


def shown_settings(settings: Settings) -> dict[str, Any]:
    """The settings by knob, as JSON values; settings that are not set are left out. Knobs that are secrets are left
    out, too. Secrets within URLs and within settings of Spark are hidden."""
    return {name: hide_secrets(value) for name, value in settings.as_json().items()}
