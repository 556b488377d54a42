"""One entry describes an aggregate: what a source file may say, what computes it, and the type of its result."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from spark_jobs.aggregates import AGGREGATES, Signature
from spark_jobs.definitions.calls import kernel_aggregate, result_type, with_vectors
from spark_jobs.engine.spark import windows as library
from spark_jobs.engine.windows import Hopping, WindowInputs
from spark_jobs.errors import ParameterError
from spark_jobs.sources.calls import AggregateCall

TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(20, 4),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""Of a source file's columns, and as Arrow has them."""


def calls_of(name: str, signature: Signature, kind: str) -> list[AggregateCall]:
    """The aggregate over columns of one type, with the least of its numbers."""
    numbers = [f"{number.least:g}" for number in signature.numbers]
    columns = [kind] * (2 if signature.as_vector else max(signature.least, signature.most or 0))
    return [
        AggregateCall.model_validate(f"{name}({', '.join([*given, *numbers])})") for given in (columns, columns[:1])
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", AGGREGATES)
def test_the_type_of_a_result_is_known_without_evaluating_it(name: str, kind: str) -> None:
    signature = AGGREGATES[name]
    for call in calls_of(name, signature, kind):
        if signature.operands is not None and kind not in signature.operands:
            # the parts of a vector become doubles: it is the source file alone that refuses them
            if not signature.as_vector:
                with pytest.raises(ParameterError):
                    result_type("r", call, TYPES)
            continue
        fields = [("k", pa.int64()), ("t", pa.int64()), (f"v_{kind}", TYPES[kind])]
        rows = with_vectors(pa.schema(fields).empty_table(), {"r": call})
        inputs = WindowInputs(["k"], "t", {"r": kernel_aggregate("r", call)})
        made = Hopping(5, 5).windows(rows, inputs).table(0, 0, None)
        assert result_type("r", call, TYPES) == made.schema.field("r").type


def test_every_aggregate_is_in_the_library_too() -> None:
    for signature in AGGREGATES.values():
        assert signature.constructor in library.__all__


def test_reading_a_source_file_loads_no_kernel() -> None:
    loads = (
        "import sys, spark_jobs.sources; print(sorted({'numba', 'numpy', 'pyarrow', 'pyspark'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", loads], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"
