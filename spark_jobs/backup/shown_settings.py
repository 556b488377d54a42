"""The settings that a backup keeps and a restore shows: those of a home, without passwords within them."""

from __future__ import annotations

import re
from typing import Any

from spark_jobs.config import Settings

HIDDEN = "…"
"""The text that replaces a secret within a setting."""
_SECRET = r"(?:password|secret|token|credential|(?:access|private|account)[._]?key)"
_WITHIN = re.compile(rf"(//)[^/@\s]*:[^/@\s]*(?=@)|({_SECRET}[^=&;\s]*=)[^&;\s]*", re.IGNORECASE)
"""The secrets within a text: a user with a password in a URL, and anywhere a parameter with the name of a secret."""
_NAMES_SECRET = re.compile(_SECRET, re.IGNORECASE)


def shown_settings(settings: Settings) -> dict[str, Any]:
    """The settings by knob, as JSON values; settings that are not set are left out. Knobs that are secrets are left
    out, too. Secrets within URLs and within settings of Spark are hidden."""
    values = settings.as_json()
    texts = {name: _hide_secrets(value) for name, value in values.items() if isinstance(value, str)}
    spark = {
        name: HIDDEN if _NAMES_SECRET.search(name) else _hide_secrets(value)
        for name, value in settings.spark_conf.items()
    }
    return {**values, **texts, **({"spark_conf": spark} if "spark_conf" in values else {})}


def _hide_secrets(text: str) -> str:
    return _WITHIN.sub(lambda secret: f"{secret[1] or secret[2]}{HIDDEN}", text)
