"""Flows as charts: the records of a run from files to marts, and the lineage of a source or a mart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.model import pluralize
from spark_jobs.portal.changes import Change
from spark_jobs.portal.charts import Chart
from spark_jobs.portal.links import Links
from spark_jobs.portal.marts import Mart
from spark_jobs.portal.runs import WholeRun
from spark_jobs.sources import Source

_LEAST = 0.02
"""The least width of a flow, as a share of the widest: thin flows stay visible."""
_ROW = 70
"""The height of a node with its label, in pixels."""
_ACCOUNTS = {
    "accepted": ("in windows", "good"),
    "partial": ("in some of their windows", "warn"),
    "moved": ("in a later window", "warn"),
    "discarded": ("too late: left out", "bad"),
    "skipped": ("skipped", "bad"),
    "null_key": ("without a key", "bad"),
    "null_time": ("without a time", "bad"),
    "out_of_range": ("out of range", "bad"),
}
"""The account of a window definition: its words and its colour, by the name in a run's manifest."""


@dataclass
class _Flow:
    """Nodes and links as `portal.js` takes them; `rows` has each link for the table."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)

    def node(
        self, label: str, depth: int, kind: str = "plain", count: int | None = None, unit: str = "", href: Any = None
    ) -> int:
        """Add a node; returns its place."""
        node = {"label": label, "depth": depth, "kind": kind, "count": count, "unit": unit, "href": href}
        self.nodes.append(node)
        return len(self.nodes) - 1

    def link(self, start: int, end: int, weight: float, count: int | None = None, unit: str = "") -> None:
        """Add a link between nodes; one without weight is left out. Rows that are taken back have negative weights."""
        if weight:
            self.links.append({"from": start, "to": end, "weight": abs(weight), "count": count, "unit": unit})
            self.rows.append([self.nodes[start]["label"], self.nodes[end]["label"], count, unit])

    def chart(self, title: str, summary: str) -> Chart:
        """The chart; its height fits the depth that has the most nodes."""
        widest = max((link["weight"] for link in self.links), default=1)
        for link in self.links:
            link["weight"] = max(link["weight"], widest * _LEAST)
        depths = [node["depth"] for node in self.nodes]
        height = max(150, _ROW * max(map(depths.count, depths)))
        data = {"nodes": self.nodes, "links": self.links, "height": height}
        counts = any(row[2] is not None for row in self.rows)
        columns, rows = ["from", "to", "number", "unit"], self.rows
        if not counts:
            columns, rows = columns[:2], [row[:2] for row in rows]
        return Chart(title, "flow", summary, data, columns, rows)


def run_flow(
    run: WholeRun, changes: Sequence[Change], marts: Sequence[Mart], links: Links, source: Source
) -> Chart | None:
    """The records of a run: files, rows, quarantine and duplicates, windows, published rows, marts.

    A row is in every window definition, so the widths after the rows add up to more than the rows. None for a run that
    landed no record.
    """
    rows, rejects, duplicates = (_sum(run, name) for name in ("rows", "rejects", "duplicates"))
    records = rows + rejects + duplicates
    if not records:
        return None
    flow, files = _Flow(), len({file["path"] for file in run.files if file["path"]})
    start = flow.node("files", 0, count=files, unit="files")
    landed = flow.node("rows that count" if rows >= 0 else "rows taken back", 1, "good", rows, "rows")
    flow.link(start, landed, rows, rows, "rows")
    if rejects:
        aside = flow.node("quarantine", 1, "bad", rejects, "records", links.to("quarantine", source.name))
        flow.link(start, aside, rejects, rejects, "records")
    if duplicates:
        aside = flow.node("duplicates", 1, "warn", duplicates, "rows")
        flow.link(start, aside, duplicates, duplicates, "rows")
    by_table = {change.table: change for change in changes}
    for name, accounts in _accounts(run).items():
        _windows(flow, landed, name, accounts, by_table.get(f"silver.{name}"), marts, links)
    state = by_table.get(f"gold.{source.name}")
    if state is not None and state.rows:
        node = flow.node(f"gold.{source.name}", 3, "good", state.rows, "states")
        flow.link(landed, node, rows, state.rows, "states")
        _marts(flow, node, f"gold.{source.name}", rows, marts, links)
    parts = [
        pluralize(rows, "row"),
        pluralize(rejects, "record") + " in quarantine",
        pluralize(duplicates, "duplicate"),
    ]
    summary = f"{pluralize(files, 'file')} with {pluralize(records, 'record')}: {', '.join(parts)}"
    return flow.chart("The way of the records; thin flows are drawn wider than they are", summary)


def _windows(
    flow: _Flow,
    landed: int,
    name: str,
    accounts: Mapping[str, int],
    change: Change | None,
    marts: Sequence[Mart],
    links: Links,
) -> None:
    """Add the rows of a window definition by what became of them, and the rows that it published."""
    inside = 0
    for account, (words, kind) in _ACCOUNTS.items():
        count = accounts.get(account, 0)
        if count:
            node = flow.node(f"{name}: {words}", 2, kind, count, "rows")
            flow.link(landed, node, count, count, "rows")
            if kind != "bad" and change is not None and change.rows:
                if not inside:
                    inside = flow.node(f"silver.{name}", 3, "good", change.rows, "windows")
                flow.link(node, inside, count, change.rows, "windows")
    if inside:
        _marts(flow, inside, f"silver.{name}", accounts.get("accepted", 0) or 1, marts, links)


def _marts(flow: _Flow, start: int, table: str, weight: float, marts: Sequence[Mart], links: Links) -> None:
    """Add the marts that read a published table."""
    reading = [mart for mart in marts if table in mart.reads]
    for mart in reading:
        node = flow.node(f"marts.{mart.name}", 4, href=links.to("marts", mart.name))
        flow.link(start, node, weight / len(reading))


def _accounts(run: WholeRun) -> Mapping[str, Mapping[str, int]]:
    """The accounts of each window definition by the run's manifest; none if it left none."""
    stages = (run.manifest or {}).get("stages") or []
    accounts: Mapping[str, Mapping[str, int]] = next((s["accounts"] for s in stages if s.get("accounts")), {})
    return accounts


def _sum(run: WholeRun, column: str) -> int:
    return sum((file[column] or 0) - (file[f"{column}_back"] or 0) for file in run.files)


def lineage(sources: Sequence[Source], marts: Sequence[Mart], links: Links, title: str) -> Chart | None:
    """The tables from the files of sources to marts; each is drawn equally wide. None if no source is known."""
    if not sources:
        return None
    flow, nodes = _Flow(), {}
    for source in sources:
        files = flow.node(source.path, 0)
        landed = flow.node(f"bronze.{source.name}_deltas", 1, href=links.to("sources", source.name))
        flow.link(files, landed, 1)
        tables = [f"silver.{name}" for name in source.windows]
        tables += [f"gold.{source.name}"] if source.state is not None else []
        for table in tables:
            nodes[table] = flow.node(table, 2, "good", href=links.to("sources", source.name))
            flow.link(landed, nodes[table], 1)
    left = [*marts]
    for depth in range(3, 3 + len(marts)):
        # a mart comes after all that it reads
        names = {f"marts.{mart.name}" for mart in left}
        ready = [mart for mart in left if not names & {*mart.reads}]
        for mart in ready:
            reads = [nodes[name] for name in mart.reads if name in nodes]
            if reads:
                node = flow.node(f"marts.{mart.name}", depth, "warn", href=links.to("marts", mart.name))
                nodes[f"marts.{mart.name}"] = node
                for start in reads:
                    flow.link(start, node, 1)
        left = [mart for mart in left if mart not in ready]
        if not left:
            break
    of_marts = f" and {pluralize(len(marts), 'mart')}" if marts else ""
    return flow.chart(title, f"{title}: {', '.join(nodes)}{of_marts}")
