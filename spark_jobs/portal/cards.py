"""The cards of the first page: of each source and mart its state in words, its freshness and its last drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark_jobs.model import pluralize
from spark_jobs.portal.charts import Chart
from spark_jobs.portal.drop_states import Override
from spark_jobs.portal.freshness import SourceFreshness
from spark_jobs.portal.marts import NEVER_RUN, Mart, MartRows
from spark_jobs.portal.months import VERDICTS
from spark_jobs.portal.overview import BEHIND, LAST_DROPS, SourceFacts
from spark_jobs.portal.results import NOTABLE, STOPPED

NEEDS = {
    "stopped": "stopped or wrong",
    "late": "late",
    "decide": "needs a decision",
    "look": "worth a look",
    "new": "nothing ran yet",
    "right": "right and on time",
}
"""The states of a card in words, the most urgent first."""

NEED_MEANINGS = {
    "stopped": "The last run or a test failed, an audit found a broken invariant, or a command was interrupted.",
    "late": "A drop that was due is not published, or a mart shows an earlier publication than its source.",
    "decide": "Quarantine has open records, or a drop was never run.",
    "look": "A check warns or was let pass, the last run was refused, or a test has never run.",
    "new": "Nothing ran yet, or readers see no rows yet.",
    "right": "Nothing of the other states.",
}
"""The meaning of each state."""
_BY_WEIGHT = {0: "stopped", 1: "decide", 2: "look", 3: "new"}


@dataclass(frozen=True)
class CardNeed:
    """A sentence about what needs a person, and the parts of the name of its page."""

    words: str
    page: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """The card of a source.

    `rows`: the last drops as a chart; None if nothing has landed. `strip`: the verdict of each of the last drops with
    its mark, oldest first, and `strip_words` the same in words.
    """

    facts: SourceFacts
    need: str
    needs: list[CardNeed]
    freshness: SourceFreshness
    rows: Chart | None
    strip: list[tuple[str, str]]
    strip_words: str

    @property
    def failing(self) -> int:
        """The number of checks that failed in the last run."""
        last = self.facts.last_run
        return 0 if last is None else len(last.failed)

    @property
    def names_due(self) -> bool:
        """True if one of `needs` says when the next drop was due."""
        return self.freshness.is_late and self.freshness.behind <= BEHIND


@dataclass(frozen=True)
class MartCard:
    """The card of a mart. `published`: the time up to which its source is published; None if it follows none."""

    mart: Mart
    need: str
    needs: list[CardNeed]
    rows: MartRows | None
    published: datetime | None
    owners: list[str]
    tags: list[str]
    tests: Mapping[str, int]


def source_card(facts: SourceFacts) -> Card:
    """The card of a source."""
    concerns, fresh = facts.concerns, facts.freshness
    need = _BY_WEIGHT[concerns[0].weight] if concerns else "right"
    if need != "stopped" and _is_late(fresh):
        need = "late"
    numbers = [*facts.drops][-LAST_DROPS:]
    verdicts = [verdict for _, verdict, _, _ in facts.recent_cells]
    return Card(
        facts,
        need,
        [CardNeed(each.words, each.page) for each in concerns],
        fresh,
        _rows(facts, numbers) if numbers else None,
        [(verdict, "" if verdict == "ok" else VERDICTS[verdict]) for verdict in verdicts],
        ", ".join(f"{count} {_WORDS[verdict]}" for verdict, count in Counter(verdicts).most_common()),
    )


def _is_late(fresh: SourceFreshness) -> bool:
    return fresh.is_late or fresh.behind > BEHIND


_WORDS = {
    "failed": "failed",
    "quarantine": "with records in quarantine",
    "missing": "never run",
    "overridden": "with a check let pass",
    "warned": "with warnings",
    "waiting": "not published yet",
    "empty": "without a file",
    "ok": "published",
}
"""The verdicts on drops, as an enumeration has them."""


def _rows(facts: SourceFacts, numbers: Sequence[int]) -> Chart:
    """Rows and late rows of the last drops."""
    drops, labels = [facts.drops[number] for number in numbers], [*map(facts.source.drops.label, numbers)]
    data: dict[str, Any] = {
        "labels": labels,
        "rows": [drop.rows for drop in drops],
        "late": [drop.late for drop in drops],
    }
    rows, late = sum(data["rows"]), sum(data["late"])
    words = f"{pluralize(len(drops), 'drop')} up to {labels[-1]}: {pluralize(rows, 'row')}, {late:,} of them late"
    return Chart(f"Rows of {facts.name}", "spark", words, data)


def mart_card(
    mart: Mart, rows: MartRows | None, overrides: Sequence[Override], facts: Mapping[str, SourceFacts]
) -> MartCard:
    """The card of a mart. `facts`: those of the sources that the user may see, by name."""
    tests = Counter(test.verdict for test in mart.tests)
    followed = facts.get(mart.source or "")
    published = followed.frontier_times["published"] if followed is not None and followed.is_published else None
    page, needs = ("marts", mart.name), []
    failed, notable = (sum(tests[verdict] for verdict in kind) for kind in (STOPPED, NOTABLE))
    if failed:
        needs.append(("stopped", CardNeed(f"{pluralize(failed, 'test')} failed: readers see the rows before", page)))
    is_behind = rows is not None and published is not None and rows.published is not None and rows.published < published
    if is_behind:
        needs.append(("late", CardNeed("it shows an earlier publication than its source has", page)))
    for name in sorted(mart.sources or ()):
        if name in facts and _is_late(facts[name].freshness):
            needs.append(("late", CardNeed(f"its source {name} is late, so rows are missing", ("sources", name))))
    if notable:
        needs.append(("look", CardNeed(f"{pluralize(notable, 'test')} to look at", page)))
    if tests[NEVER_RUN]:
        needs.append(("look", CardNeed(f"{pluralize(tests[NEVER_RUN], 'test')} never run", page)))
    if overrides:
        names = ", ".join(dict.fromkeys(override.name for override in overrides))
        needs.append(("look", CardNeed(f"its rows include drops of which a check was let pass: {names}", page)))
    if rows is None:
        needs.append(("new", CardNeed("readers see no rows of it yet", page)))
    of = [facts[name].source.dag for name in sorted(mart.sources or ()) if name in facts]
    return MartCard(
        mart,
        min((need for need, _ in needs), key=list(NEEDS).index, default="right"),
        [each for _, each in needs],
        rows,
        published,
        sorted({dag.owner for dag in of}),
        sorted({tag for dag in of for tag in dag.tags}),
        tests,
    )


def by_need(card: Card | MartCard) -> tuple[int, str]:
    """The key by which cards are sorted: the most urgent first."""
    return list(NEEDS).index(card.need), card.facts.name if isinstance(card, Card) else card.mart.name
