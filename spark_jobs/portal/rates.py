"""The rates at which rows came, as charts: of the source, and of its busiest entities."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_jobs.engine.measures import BUSIEST, busiest
from spark_jobs.portal.charts import Chart, Series, drops_chart, heat_chart
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.quality_tables import METRICS

_UNIT = "rows an hour"


@dataclass(frozen=True)
class Rates:
    """Rows an hour by drop, of the source and of entities that were among the busiest of a landing."""

    of_source: Mapping[int, float]
    of_entities: Mapping[tuple[int, str], float]


def rate_charts(lake: HeldLake, source: Source) -> list[Chart]:
    """The charts of `quality.metrics`' rates; none for a lake without them."""
    rates = lake.remember(
        ("rates", source.name),
        lake.version_of(METRICS, source.name),
        lambda: _rates(lake.of_source(METRICS, source.name, ("seq_no", "rate", "busiest")).to_pylist()),
    )
    charts = (_of_source(rates, source), _of_entities(rates, source))
    return [chart for chart in charts if chart is not None]


def _rates(metrics: Iterable[Mapping[str, Any]]) -> Rates:
    of_source: dict[int, float] = {}
    of_entities: dict[tuple[int, str], float] = {}
    for row in metrics:
        # rows of older versions have no rates, and those about the trace have none either
        if row["rate"] is None:
            continue
        drop = row["seq_no"]
        of_source[drop] = of_source.get(drop, 0.0) + row["rate"]
        for entity, rate in json.loads(row["busiest"] or "{}").items():
            of_entities[drop, entity] = of_entities.get((drop, entity), 0.0) + rate
    return Rates(of_source, of_entities)


def _of_source(rates: Rates, source: Source) -> Chart | None:
    values = {drop: round(rate) for drop, rate in rates.of_source.items()}
    chart = drops_chart("Rate, by drop", [Series("Rate", _UNIT, values)], source)
    if chart is None:
        return None
    last, top = max(values), max(values, key=lambda drop: values[drop])
    words = f"{values[last]:,} {_UNIT} in {source.drops.label(last)}, most {values[top]:,} in {source.drops.label(top)}"
    return replace(chart, summary=f"Rate per drop: {words}")


def _of_entities(rates: Rates, source: Source) -> Chart | None:
    totals = Counter[str]()
    for (_, entity), rate in rates.of_entities.items():
        totals[entity] += round(rate)
    names = sorted(busiest(totals, BUSIEST), key=lambda entity: (totals[entity], entity))
    counts = {
        (drop, names.index(entity)): round(rate)
        for (drop, entity), rate in rates.of_entities.items()
        if entity in names
    }
    title = f"Rates of the busiest by {source.entity}, by drop"
    # an entity that is not among the busiest of a drop may have come in it all the same
    chart = heat_chart(title, _UNIT, names, counts, source, lacking=None)
    if chart is None:
        return None
    return replace(chart, summary=f"Of the busiest by {source.entity}, from the busiest on: {', '.join(names[::-1])}")
