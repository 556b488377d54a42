"""The page of settings: every environment variable of `spark_jobs.config.Settings`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pydantic.fields import FieldInfo

from docs.generate.markdown import anchored_code, as_sentence, code, prose, section, table, whole_page
from spark_jobs.config import CHECKOUT, ENVIRONMENT_PREFIX, SECRETS, Settings

_LINE = re.compile(r"^    (?:# --- (?P<group>.+?) -+|(?P<field>[a-z_]+): )", re.MULTILINE)
_INTRODUCTION = """
Each setting is an environment variable, and nothing else is read. `tidemark settings` prints the present values, and a
value that can't be used is refused before anything runs, with [`configuration`](errors.md#configuration). Paths without
a leading `/` in the column of defaults are below the folder of the checkout.
"""


def page() -> str:
    """The page, with a table for each group of settings."""
    return whole_page("Settings", _INTRODUCTION.strip(), *(_section(name, knobs) for name, knobs in groups().items()))


def groups() -> dict[str, list[str]]:
    """The knobs of each group, as the comments in the class of settings group them."""
    grouped: dict[str, list[str]] = {}
    for line in _LINE.finditer(inspect.getsource(Settings)):
        if line["group"]:
            grouped[line["group"]] = []
        elif line["field"] in Settings.model_fields:
            list(grouped.values())[-1].append(line["field"])
    return grouped


def variable(knob: str) -> str:
    """The environment variable of a knob."""
    return f"{ENVIRONMENT_PREFIX}{knob.upper()}"


def _section(group: str, knobs: list[str]) -> str:
    rows = [_row(knob, Settings.model_fields[knob]) for knob in knobs]
    return section(2, prose(group[:1].upper() + group[1:]), table(["variable", "default", "meaning"], rows))


def _row(knob: str, field: FieldInfo) -> list[str]:
    secret = " It is a secret: no list of settings prints it." if knob in SECRETS else ""
    meaning = as_sentence(prose(field.description or "")) + secret
    return [anchored_code(variable(knob), variable(knob).lower()), _default(field), meaning]


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None and field.default_factory_takes_validated_data:
        return code(str(field.get_default(call_default_factory=True, validated_data={"home": Path("$TIDEMARK_HOME")})))
    if field.default_factory is not None:
        return "depends on the machine"
    value = field.default
    if value is None or value == "":
        return "not set"
    if isinstance(value, Path) and value.is_relative_to(CHECKOUT):
        return code(value.relative_to(CHECKOUT).as_posix())
    return code(str(value).lower() if isinstance(value, bool) else str(value))
