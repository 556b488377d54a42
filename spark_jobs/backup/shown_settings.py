"""The settings that a backup keeps and a restore shows: those of a home, without passwords within them."""

from __future__ import annotations

import re
from typing import Any

from spark_jobs.config import Settings

HIDDEN = "…"
"""What stands in place of a secret that is part of a setting."""
_IN_URL = re.compile(r"(?<=//)[^/@\s]*:[^/@\s]*(?=@)|(?<=[?&;]password=)[^&;\s]*", re.IGNORECASE)
"""A user with a password, or the password among the parameters."""
_NAMES_SECRET = re.compile(r"password|secret|token|credential|(access|private|account)[._]?key", re.IGNORECASE)


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Knob -> value as JSON has it, without what is not set. Knobs that are secrets are left out; secrets within URLs
    and within settings of Spark are hidden."""
    shown = settings.shown()
    texts = {name: _IN_URL.sub(HIDDEN, value) for name, value in shown.items() if isinstance(value, str)}
    spark = {name: HIDDEN if _NAMES_SECRET.search(name) else value for name, value in settings.spark_conf.items()}
    return {**shown, **texts, **({"spark_conf": spark} if "spark_conf" in shown else {})}
