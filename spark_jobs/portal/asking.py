"""Requests for pages: the sources that the user may see, the pages of long lists, and the refusal of a missing page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import TidemarkError

PAGED, MOST_PAGES = 50, 20
"""The records on one page of a long list, and the most pages of a list; a command lists the others."""


class PageMissing(TidemarkError):
    """There is no such page. Facts: `page`."""

    code = "page_missing"


def missing_page(page: str) -> PageMissing:
    """The refusal of a page that is not there, or that the user may not see."""
    return PageMissing(
        expected="a page of the portal",
        found=page,
        consequence="nothing is shown",
        next_step="begin at the first page; a run's page is there once the run has landed something",
        page=page,
    )


def pages_of(records: int) -> int:
    """The number of pages of a list of so many records, at least 1."""
    return min(-(-records // PAGED), MOST_PAGES) or 1


@dataclass(frozen=True)
class ListPage:
    """A page of a long list: its number, the number of pages, its records, and how many records the list has.

    `listed`: the number of records that pages can show.
    """

    number: int
    pages: int
    records: list[Any]
    total: int
    listed: int


@dataclass(frozen=True)
class VisibleSources:
    """The sources that the user may see. `sees(None)` is true if the user may see all sources, also future ones.

    `acts_on` is true of a source whose runs the user may start.
    """

    sees: Callable[[str | None], bool] = lambda _: True
    acts_on: Callable[[str], bool] = lambda _: False


def page_of_list(records: Sequence[Any], number: str, name: str) -> ListPage:
    """The page `number` of a long list. PageMissing: the list has no such page; `name` is the name of the page."""
    pages = pages_of(len(records))
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= pages:
        raise missing_page(name)
    first = (int(number) - 1) * PAGED
    return ListPage(int(number), pages, list(records[first : first + PAGED]), len(records), pages * PAGED)
