"""The state of a source's entities: what a row does to its entity's vector, and how chains of deltas are compacted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, StrictFloat, StrictInt, model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.sources.problems import all_of, refuse, refuse_in_words
from spark_jobs.sources.quantities import PositiveDuration
from spark_jobs.sources.section import Identifier, Section

Scalar = str | int | float | bool

KEEP_RECENT = 10
"""The number of newest deltas that tiered and adaptive leave pending if the source file does not give one."""


def names_to_themselves(value: Any) -> Any:
    """A list of names as a mapping of each name to itself; any other value as it is."""
    return (
        {name: name for name in value} if isinstance(value, list) and all(isinstance(n, str) for n in value) else value
    )


class Operations(Section):
    """The columns that define what a row of mode `operations` does."""

    op: str
    """The operation: `create`, `dense`, `sparse`, `scale`, `offset`, `add`, `transform`, `delete` or `upsert`."""
    indices: str | None = None
    """The places of the components: text of a JSON list, such as "[0, 2]"."""
    values: str | None = None
    """The values of the components: text of a JSON list, such as "[1.5, 3]"."""
    scalar: str | None = None
    """The operand of scale and offset."""
    transform: str | None = None
    """The registered name of a transform."""
    parent: str | None = None
    """The delta_id of the delta that this one is based on."""


class DeleteWhen(Section):
    """The rows that delete their entity: those with one of `values` in `column`."""

    short_forms: ClassVar = ({"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1})
    has_long_form: ClassVar = False

    column: str
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)] = (True,)

    @model_validator(mode="before")
    @classmethod
    def _accept_short_forms(cls, value: Any) -> Any:
        """Accept `gone` (a column of bools) and `{status: [gone, lost]}`."""
        if isinstance(value, str):
            return {"column": value}
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            raise refuse("the name of a column of bools, or one column with the values that mean delete", value)
        ((column, values),) = value.items()
        return {"column": str(column), "values": values if isinstance(values, list | tuple) else [values]}


_Values = dict[Identifier, str | StrictInt | StrictFloat]
Components = Annotated[
    _Values, BeforeValidator(names_to_themselves, json_schema_input_type=_Values | tuple[Identifier, ...])
]
"""`{component: column or constant}`, or a list of columns that keep their names."""


class State(Section):
    """The state of an entity: a vector of components that the rows change.

    mode `add`: each row adds the value of each component's column (no value adds 0), or a constant in its place.
    mode `diff`: each row has the components' values; the delta is their change since the row before, null included.
    mode `upsert`: each row assigns the components that it has values for, and leaves the others.
    mode `operations`: columns of each row define its operation. The vector has named `components`, or `length`
    components without names, or as many as `create` and `dense` give it.
    """

    mode: Literal["add", "diff", "upsert", "operations"]
    """The effect of a row, as above."""
    datatype: Literal["int64", "float64", "float32"] = "float64"
    """The type of the components."""
    components: Components = Field(default_factory=dict)
    """The components of the vector, each a column or a constant; or a list of columns."""
    length: PositiveInt | None = None
    """The number of components without names."""
    operations: Operations | None = None
    delete_when: DeleteWhen | None = None
    """Rows that delete the entity, whatever other values they have; the next row begins anew."""

    @model_validator(mode="after")
    def _check_mode(self) -> State:
        if self.mode != "operations":
            alone = [name for name in ("operations", "length") if getattr(self, name) is not None]
            if alone:
                raise refuse(f"no {' and no '.join(alone)}: only the mode operations has that", self.mode)
            if not self.components:
                raise refuse_in_words("`components`, at least one", "none")
            return self
        if self.operations is None:
            raise refuse_in_words("`operations`: the columns that say what a row does", "none")
        if self.length is not None and self.components:
            raise refuse_in_words("`length` or named `components`", "both")
        if self.delete_when is not None:
            raise refuse_in_words("no `delete_when`: in mode operations a row says `delete` itself", "one")
        return self

    @property
    def width(self) -> int | None:
        """The length of every vector; None if it is not declared."""
        return len(self.components) or self.length

    def definition(self) -> dict[str, Any]:
        """The fields that results depend on, as plain data, without those that have no value."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class CompactionRules(Section):
    """The rules that keep chains of deltas short; no answer depends on them.

    strategy `full`: a checkpoint after the newest delta. `tiered`: a checkpoint after all but the newest `keep_recent`.
    `time_boundary`: one at the end of every `interval` of event time. `adaptive`: full or tiered. It depends on how
    often states are read for every new delta, among entities that have had about as many deltas.
    A chain is compacted once it has `delta_threshold` pending deltas, or once the first pending one is older than
    `age_threshold` of event time. From `max_chain_length` deltas on, it must be compacted: every compaction leaves
    fewer, whatever the strategy.
    Runs compact chains, and maintenance compacts those that are due all the same. With `background`, runs leave to
    maintenance the chains that need not be compacted at once.
    """

    short_forms: ClassVar = ({"enum": ["full", "tiered", "time_boundary", "adaptive"]},)

    strategy: Literal["full", "tiered", "time_boundary", "adaptive"] = "tiered"
    """The strategy, as above."""
    keep_recent: NonNegativeInt | None = None
    """The newest deltas that stay pending, for `tiered` and `adaptive`."""
    interval_us: PositiveDuration | None = Field(default=None, alias="interval")
    """The distance between two checkpoints in event time, for `time_boundary`."""
    delta_threshold: PositiveInt = 100
    """The number of pending deltas from which on a chain is compacted."""
    age_threshold_us: PositiveDuration | None = Field(default=None, alias="age_threshold")
    """The age of the first pending delta from which on a chain is compacted, in event time."""
    max_chain_length: PositiveInt = 1000
    """The number of pending deltas from which on a chain must be compacted."""
    background: bool = False
    """True: runs compact only chains that must be compacted; maintenance compacts the others that are due."""
    background_interval_us: PositiveDuration | None = Field(default=None, alias="background_interval")
    """With `background`, the time between two runs of a DAG that compacts chains; without it, maintenance alone
    does."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_strategy(cls, value: Any) -> Any:
        return {"strategy": value} if isinstance(value, str) else value

    @property
    def newest_pending(self) -> int:
        """The number of newest deltas that tiered and adaptive leave pending."""
        return KEEP_RECENT if self.keep_recent is None else self.keep_recent

    @model_validator(mode="after")
    def _check_strategy(self) -> CompactionRules:
        problems = list(self._problems())
        if problems:
            raise all_of("CompactionRules", problems)
        return self

    def _problems(self) -> Iterator[tuple[str, PydanticCustomError]]:
        tiered, most = self.strategy in ("tiered", "adaptive"), self.max_chain_length
        if self.keep_recent is not None and not tiered:
            yield "keep_recent", refuse("no `keep_recent`: only tiered and adaptive have one", self.strategy)
        if (self.interval_us is None) != (self.strategy != "time_boundary"):
            yield "interval", refuse("an `interval` with the strategy time_boundary, and with no other", self.strategy)
        if self.delta_threshold > most:
            expected = f"a `delta_threshold` of at most max_chain_length, {most}"
            yield "delta_threshold", refuse_in_words(expected, str(self.delta_threshold))
        if self.background_interval_us is not None and not self.background:
            yield "background_interval", refuse("a `background_interval` with `background: true` alone", "none")
        if tiered and self.newest_pending >= most:
            expected = (
                f"a `keep_recent` below max_chain_length, {most}: a chain as long must be compacted to fewer deltas"
            )
            finding = f"{KEEP_RECENT}, the default" if self.keep_recent is None else str(self.keep_recent)
            yield "keep_recent", refuse_in_words(expected, finding)
