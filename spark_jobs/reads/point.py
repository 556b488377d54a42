"""The point at which a source is read: its publication, its frontiers, and the times of the question, checked once.

A read is definite: the same question always has the same answer, whatever lands, is backfilled or compacted later. For
that, its visible time must be below `published` (else `not_published`) and at or after `since` (else `below_since`). A
read of published tables must not be before the first publication either (else `before_first_publication`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.engine.deltas import BelowSince
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake, TableReader
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.horizon import check_state_time, published_horizon


class NotPublished(TidemarkError):
    """The time asked for is not published yet. Facts: `at_us`, `published_us`."""

    code = "not_published"


class BeforeFirstPublication(TidemarkError):
    """The time asked for lies before the source's first publication. Facts: `at_us`, `first_us`."""

    code = "before_first_publication"


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """The point at which `source` is read: the publication in force, the frontiers, and the visible time up to which
    changes are known (`known_us`, microseconds)."""

    source: Source
    publication: Publication
    frontiers: SourceFrontiers
    known_us: int

    @classmethod
    def open(cls, lake: TableReader, source: Source, known_us: int | None = None) -> ReadPoint:
        """The point of a visible time in microseconds; None: the newest, one tick before `published`.

        Raises:
            NotPublished: nothing is published at that time yet.
            BelowSince: the time lies before `since`.
        """
        current = publication.load(lake, source)
        if current.published_us == 0:
            raise _nothing_published(source, known_us)
        published = frontiers.load(lake, source, near=current.token)
        if known_us is not None:
            _check_known(source, current, published, known_us)
        return cls(source, current, published, current.published_us - 1 if known_us is None else known_us)

    @classmethod
    def of_publication(cls, lake: Lake, source: Source, at_us: int | None = None) -> ReadPoint:
        """The point for a read of published tables, which have no rows of times before the first publication.

        Raises:
            NotPublished, BelowSince: as `open`.
            BeforeFirstPublication: the time lies before it.
        """
        point = cls.open(lake, source, at_us)
        if at_us is not None:
            first_us = frontiers.first_published_us(lake, source, point.publication) - 1
            if at_us < first_us:
                raise _before_first(source, at_us, first_us)
        return point

    @property
    def horizon_us(self) -> int:
        """The event time from which on states are exact, in microseconds."""
        return published_horizon(self.source, self.frontiers, self.publication)

    def event_limit(self, event_us: int | None) -> int:
        """The greatest event time that a state at `event_us` includes, in microseconds; None: all that is published.

        Raises:
            BelowHorizon: it lies before the horizon.
        """
        newest_us = self.publication.reached_us - 1
        limit_us = newest_us if event_us is None else min(event_us, newest_us)
        check_state_time(self.horizon_us, limit_us)
        return limit_us


def _before_first(source: Source, at_us: int, first_us: int) -> BeforeFirstPublication:
    return BeforeFirstPublication(
        expected=f"a time from the first publication of {source.name} on, {instant(first_us).isoformat()}",
        found=instant(at_us).isoformat(),
        consequence="no answer was given: a run of several drops publishes them at one time, that of its end",
        next_step="ask for a later time; drops run one by one (`--each`) are told apart by their times",
        at_us=at_us,
        first_us=first_us,
    )


def _nothing_published(source: Source, at_us: int | None) -> NotPublished:
    return NotPublished(
        expected=f"something published of {source.name}",
        found="nothing",
        consequence="no answer was given",
        next_step=f"run its drops first: `tidemark run {source.name} --from … --to …`",
        at_us=at_us,
        published_us=0,
    )


def _check_known(source: Source, current: Publication, published: SourceFrontiers, at_us: int) -> None:
    newest_us, since_us = current.published_us - 1, published.arrangement.since.time or 0
    if at_us > newest_us:
        raise NotPublished(
            expected=f"a time before the publication of {source.name}",
            found=instant(at_us).isoformat(),
            consequence="no answer was given, since it could still change",
            next_step=f"{instant(newest_us).isoformat()} is the newest; run the drops up to that time first",
            at_us=at_us,
            published_us=current.published_us,
        )
    if at_us < since_us:
        raise BelowSince(
            expected=f"a time at or after since, {instant(since_us).isoformat()}",
            found=instant(at_us).isoformat(),
            consequence="no answer was given, since times before it are no longer told apart",
            next_step="ask for a later time, or restore a pinned checkpoint",
            at_us=at_us,
            since_us=since_us,
        )
