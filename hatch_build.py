"""The part of the build that ships `dags`, `dbt`, `examples` and the glossary in the wheel, within `spark_jobs`.

`SHIPPED` of `spark_jobs/config.py` is where they are then. An editable installation has them in the checkout.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShippedFolders(BuildHookInterface[Any]):
    """The hook that hatchling calls before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders and the file to a wheel, unless it is an editable one (`version`)."""
        if version == "standard":
            shipped = ("dags", "dbt", "examples", "docs/glossary.md")
            build_data["force_include"] |= {name: f"spark_jobs/{name}" for name in shipped}
