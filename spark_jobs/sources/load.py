"""Reads a source file, and reports all of its problems at once, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from spark_jobs.sources.calls import AggregateCall
from spark_jobs.sources.checks import Draft, DraftWindow, check_draft
from spark_jobs.sources.columns import DeclaredColumn
from spark_jobs.sources.data_checks import DataCheck
from spark_jobs.sources.problems import Problem, SourceFileError, from_validation, show
from spark_jobs.sources.quantities import local_start
from spark_jobs.sources.section import Section
from spark_jobs.sources.source import Source
from spark_jobs.sources.state import Operations, State
from spark_jobs.sources.windows import AdaptiveWindow, EmittingWindow
from spark_jobs.sources.yaml_file import read_yaml


def load_source(path: str | Path) -> Source:
    """Read one source file. Raises SourceFileError (`source_file`) that lists every problem of the file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceFileError(path.name, [Problem("", "a readable file of UTF-8 text", str(error))]) from None
    return parse_source(text, file=path.name)


def parse_source(text: str, *, file: str) -> Source:
    """Read the text of a source file called `file` (`<source>.yml`). Raises SourceFileError like `load_source`."""
    document, problems = read_yaml(text)
    if document is None and not problems:
        problems = [Problem("", "a source", "an empty file")]
    if document is not None and not isinstance(document, dict):
        problems.append(Problem("", "a mapping of keys to values", show(document)))
    if isinstance(document, dict):
        problems += _problems_of(document, stem=Path(file).stem)
    if problems:
        raise SourceFileError(file, problems)
    return Source.model_validate(document)


def _problems_of(document: dict[Any, Any], *, stem: str) -> list[Problem]:
    problems: list[Problem] = []
    try:
        Source.model_validate(document)
    except ValidationError as error:
        problems += from_validation(error, document)
    if isinstance(document.get("source"), str) and document["source"] != stem:
        problems.append(Problem("source", f"the file's name, {stem!r}", repr(document["source"])))
    return problems + check_draft(_draft_of(document))


def _draft_of(document: dict[Any, Any]) -> Draft:
    values = _well_read(_FIELDS, document)
    if values.get("timezone") is not None and "start" in values:
        values["start"] = _read(_FIELDS["start"], local_start(document["start"], values["timezone"]))
    draft = Draft(values=values)
    draft.columns = {name: _or_none(_read(_COLUMN, raw)) for name, raw in _items(document, "columns")}
    draft.timelines = {name: raw if isinstance(raw, str) else None for name, raw in _items(document, "timelines")}
    draft.windows = {name: _draft_window(raw) for name, raw in _items(document, "windows")}
    draft.data_checks = {name: _or_none(_read(_DATA_CHECK, raw)) for name, raw in _items(document, "checks")}
    state = document.get("state")
    if isinstance(state, dict):
        read = _well_read(_STATE_FIELDS, state)
        draft.state_mode, draft.state_datatype = read.get("mode"), read.get("datatype", "float64")
        draft.components = dict(_items(state, "components"))
        draft.delete_when = read.get("delete_when")
        operations = state.get("operations")
        draft.operations = _well_read(_OPERATION_FIELDS, operations) if isinstance(operations, dict) else {}
    return draft


def _draft_window(raw: Any) -> DraftWindow:
    if not isinstance(raw, dict):
        return DraftWindow()
    read = _well_read(_ADAPTIVE_FIELDS if raw.get("kind") == "adaptive" else _WINDOW_FIELDS, raw)
    aggregates = {name: _read(_AGGREGATE, call) for name, call in _items(raw, "aggregates")}
    return DraftWindow(
        key=read.get("key", ()),
        time=read.get("time"),
        kind=raw.get("kind"),
        vector=read.get("vector"),
        size_bytes=read.get("size_bytes"),
        grace=read.get("grace"),
        has_late="late" in raw,
        triggers=read.get("triggers") or () if raw.get("kind") != "adaptive" else (),
        emits=read.get("emit") == "early",
        aggregates={name: aggregate for name, aggregate in aggregates.items() if aggregate is not _UNREAD},
    )


def _items(document: dict[Any, Any], key: str) -> list[tuple[str, Any]]:
    raw = document.get(key)
    if isinstance(raw, list):
        return [(str(name), name) for name in raw]
    return [(str(name), value) for name, value in raw.items()] if isinstance(raw, dict) else []


def _well_read(adapters: dict[str, TypeAdapter[Any]], raw: dict[Any, Any]) -> dict[str, Any]:
    values = {key: _read(adapter, raw[key]) for key, adapter in adapters.items() if key in raw}
    return {key: value for key, value in values.items() if value is not _UNREAD}


def _read(adapter: TypeAdapter[Any], raw: Any) -> Any:
    try:
        return adapter.validate_python(raw)
    except ValidationError:
        return _UNREAD


def _or_none(value: Any) -> Any:
    return None if value is _UNREAD else value


def _adapters_of(section: type[Section]) -> dict[str, TypeAdapter[Any]]:
    return {field.alias or name: _adapter_of(field) for name, field in section.model_fields.items()}


def _adapter_of(field: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = field.annotation
    return TypeAdapter(Annotated[(annotation, *field.metadata)] if field.metadata else annotation)


_UNREAD = object()
_FIELDS = _adapters_of(Source)
_WINDOW_FIELDS = _adapters_of(EmittingWindow)
_ADAPTIVE_FIELDS = _adapters_of(AdaptiveWindow)
_STATE_FIELDS = _adapters_of(State)
_OPERATION_FIELDS = _adapters_of(Operations)
_COLUMN: TypeAdapter[Any] = TypeAdapter(DeclaredColumn)
_DATA_CHECK: TypeAdapter[Any] = TypeAdapter(DataCheck)
_AGGREGATE: TypeAdapter[Any] = TypeAdapter(AggregateCall)
