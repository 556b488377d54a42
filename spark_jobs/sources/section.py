"""The base of all parts of a source file: frozen, closed against unknown keys, with hints for mistyped ones."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails

from spark_jobs.sources.problems import did_you_mean, refuse, refuse_in_words

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SQL_WORDS = frozenset(
    {"all", "and", "anti", "any", "as", "between", "both", "by", "case", "cast", "check", "collate", "column"}
    | {"constraint", "create", "cross", "current_date", "current_time", "current_timestamp", "current_user"}
    | {"default", "delete", "desc", "distinct", "drop", "else", "end", "escape", "except", "exists", "false"}
    | {"fetch", "filter", "for", "foreign", "from", "full", "grant", "group", "having", "in", "inner", "insert"}
    | {"intersect", "interval", "into", "is", "join", "lateral", "leading", "left", "like", "limit", "minus"}
    | {"natural", "not", "null", "offset", "on", "only", "or", "order", "outer", "overlaps", "primary"}
    | {"references", "right", "select", "semi", "session_user", "set", "some", "table", "then", "to", "trailing"}
    | {"true", "union", "unique", "unknown", "update", "user", "using", "values", "when", "where", "with"}
)


def is_identifier(name: str) -> bool:
    """True if `name` has the form of a table's name; unlike `check_identifier`, this accepts words of SQL."""
    return _IDENTIFIER.fullmatch(name) is not None


def check_identifier(name: Any) -> str:
    """`name`, if SQL takes it unquoted on every engine (lowercase, digits, underscores; no keyword); else refuse it."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise refuse("a name of lowercase letters, digits and underscores that starts with a letter (at most 63)", name)
    if name in _SQL_WORDS:
        raise refuse("a name that is no word of SQL (a column keeps its name in the file with `from:`)", name)
    return name


Identifier = Annotated[
    str, AfterValidator(check_identifier), WithJsonSchema({"type": "string", "pattern": f"^{_IDENTIFIER.pattern}$"})
]
"""A name that becomes a table, a column or a component: safe in SQL without quotes."""


class Section(BaseModel):
    """A part of a source file: frozen, and unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    refused_keys: ClassVar[dict[str, str]] = {}
    """Keys that other tools use for something that has another name here, each with the key to write instead."""
    short_forms: ClassVar[tuple[dict[str, Any], ...]] = ()
    """JSON Schemas of values that may be written in place of the mapping."""
    has_long_form: ClassVar[bool] = True
    """False if only the short forms may be written."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The JSON Schema of the part: of its mapping, and of its short forms."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.short_forms:
            long = dict(schema)
            schema.clear()
            schema |= {"description": long.pop("description", ""), "title": long.pop("title")}
            schema["anyOf"] = [*cls.short_forms, *([long] if cls.has_long_form else [])]
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            lines = [cls._explain(line) for line in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, lines) from None

    @classmethod
    def _explain(cls, line: Any) -> InitErrorDetails:
        context = line.get("ctx", {})
        kind: Any = line["type"]
        if kind == "refused":
            kind = refuse_in_words(context["expected"], context["found"])
        elif kind == "extra_forbidden" and len(line["loc"]) == 1:
            key = str(line["loc"][0])
            keys = [field.alias or name for name, field in cls.model_fields.items()]
            expected = cls.refused_keys.get(key, f"one of the keys {', '.join(keys)}")
            kind = refuse_in_words(expected, f"the unknown key `{key}`{did_you_mean(key, keys)}")
        return InitErrorDetails(type=kind, loc=line["loc"], input=line["input"], ctx=context)
