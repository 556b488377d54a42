"""The dashboard for Grafana: it asks for figures that exist, in panels that do not overlap."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_jobs.cli.metrics_server import OfProcesses
from spark_jobs.config import Settings
from spark_jobs.portal.monitoring import openmetrics
from spark_jobs.portal.pages import Portal
from tests.jobs.harness import write_source

DASHBOARD = json.loads((Path(__file__).parents[2] / "docker" / "grafana-dashboard.json").read_text())


def test_each_figure_that_it_asks_for_exists(tmp_path: Path) -> None:
    settings = write_source(Settings(home=tmp_path))
    text = openmetrics(Portal(settings, is_live=False), OfProcesses(settings)).decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    asked = {name for query in queries for name in re.findall(r"tidemark_\w+", query)}
    assert asked
    assert asked <= names


def test_panels_have_a_meaning_and_a_place_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert all(panel["title"] and panel["description"] for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert not [(one["title"], other["title"]) for one, other in combinations(panels, 2) if _overlap(one, other)]


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    return bool(
        a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    )
