"""How far retention lets since and the horizon go, and what lies before the horizon."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.engine.deltas import BelowHorizon
from spark_jobs.model import Frontier
from spark_jobs.sources import Source, parse_source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.trace.expiry import RowsExpired, check_whole, due_rows_from, first_whole_drop
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers
from spark_jobs.trace.horizon import check_drops, check_state_time, landing_horizon, published_horizon
from spark_jobs.trace.maintenance import since_allowed
from tests.jobs.harness import SOURCE
from tests.trace.days import DAY_US


def source(retention: str = "{}") -> Source:
    return parse_source(f"{SOURCE}retention: {retention}\n", file="meters.yml")


def published(days: int, **changes: Any) -> Publication:
    start_us = source().drops.start_us
    given = {"published_us": start_us + days * DAY_US, "reached_us": start_us + days * DAY_US, "complete_us": start_us}
    return Publication(**{**given, **changes})


def test_since_follows_what_is_published_at_its_distance_and_never_goes_back() -> None:
    kept = source("{since: 2 days}")
    state = ArrangementState()
    assert since_allowed(kept, state, published(0, published_us=0)) == Frontier.at(0)
    assert since_allowed(kept, state, published(5)) == Frontier.at(kept.drops.start_us + 3 * DAY_US)
    ahead = state.allow_compaction(Frontier.at(kept.drops.start_us + 4 * DAY_US))
    assert since_allowed(kept, ahead, published(5)) == ahead.since
    assert since_allowed(source(), state, published(5)) == Frontier.at(0)


def test_the_horizon_follows_what_was_reached_at_its_distance_and_never_goes_back() -> None:
    kept = source("{horizon: 2 days}")
    start = SourceFrontiers.start(kept)
    assert published_horizon(kept, start, published(0, published_us=0)) == NO_HORIZON_US
    assert published_horizon(kept, start, published(5)) == kept.drops.start_us + 3 * DAY_US
    ahead = replace(start, horizon_us=kept.drops.start_us + 4 * DAY_US)
    assert published_horizon(kept, ahead, published(5)) == ahead.horizon_us
    assert published_horizon(source(), start, published(5)) == NO_HORIZON_US


def test_a_run_meets_the_horizon_of_what_was_reached_and_the_first_run_none() -> None:
    kept, start_us = source("{horizon: 2 days}"), source().drops.start_us
    first = SourceFrontiers.start(kept)
    assert landing_horizon(kept, first) == NO_HORIZON_US
    fifth = replace(first.with_landed(range(5)), reached_us=start_us + 5 * DAY_US)
    assert landing_horizon(kept, fifth) == start_us + 3 * DAY_US
    assert landing_horizon(source(), fifth) == NO_HORIZON_US
    # retention that was made longer, or taken out, brings nothing back
    ahead = replace(fifth, horizon_us=start_us + 4 * DAY_US)
    assert landing_horizon(kept, ahead) == landing_horizon(source(), ahead) == ahead.horizon_us
    # a drop that the next run would find wholly below is refused, though nothing was published since
    with pytest.raises(BelowHorizon):
        check_drops(kept, replace(fifth, landed=((4, 5),)), range(2, 3))
    check_drops(kept, replace(fifth, landed=((4, 5),)), range(3, 4))


def test_what_lies_wholly_before_the_horizon_is_refused_by_name() -> None:
    kept = source()
    horizon_us = kept.drops.start_us + 2 * DAY_US
    standing = replace(SourceFrontiers.start(kept), horizon_us=horizon_us)
    with pytest.raises(BelowHorizon) as refused:
        check_drops(kept, standing, range(4))
    assert refused.value.facts == {"drops": ["2024-01-01", "2024-01-02"], "horizon_us": horizon_us}
    check_drops(kept, standing, range(2, 4))
    check_drops(kept, standing.with_landed(range(2)), range(4))
    with pytest.raises(BelowHorizon):
        check_state_time(standing.horizon_us, horizon_us - 1)
    check_state_time(standing.horizon_us, horizon_us)


def test_rows_leave_bronze_behind_since_and_the_horizon_in_steps_and_never_come_back() -> None:
    kept = source("{since: 1 day, horizon: 2 days, bronze: 16 days}")
    start_us = kept.drops.start_us

    def at(days: float, since: float, horizon: float) -> SourceFrontiers:
        state = ArrangementState().allow_compaction(Frontier.at(int(start_us + since * DAY_US)))
        horizon_us, rows_from_us = (int(start_us + n * DAY_US) for n in (horizon, days))
        start = SourceFrontiers.start(kept)
        return replace(start, arrangement=state, horizon_us=horizon_us, rows_from_us=rows_from_us)

    unmoved = replace(at(0, 90, 90), rows_from_us=NO_HORIZON_US)
    assert due_rows_from(kept, unmoved, published(16)) == NO_HORIZON_US, "no drop has ended before"
    assert due_rows_from(kept, unmoved, published(17)) == start_us + DAY_US
    assert due_rows_from(source(), unmoved, published(90)) == NO_HORIZON_US
    assert due_rows_from(kept, unmoved, published(90, published_us=0)) == NO_HORIZON_US
    for since, horizon, due in ((90, 90, 24), (7, 90, 7), (90, 8, 8), (5.5, 90, 5), (3, 90, 5)):
        assert due_rows_from(kept, at(5, since, horizon), published(40)) == start_us + due * DAY_US
    assert [first_whole_drop(kept, start_us + n) for n in (-DAY_US, 0, DAY_US - 1, DAY_US)] == [0, 0, 0, 1]
    assert first_whole_drop(kept, NO_HORIZON_US) == 0
    check_whole(kept, at(2, 90, 90), [2, 3])
    with pytest.raises(RowsExpired) as refused:
        check_whole(kept, at(2, 90, 90), [3, 1, 0])
    assert refused.value.facts["drops"] == ["2024-01-01", "2024-01-02"]


def test_frontiers_survive_json_and_read_states_of_before_retention() -> None:
    kept = SourceFrontiers(ArrangementState().advance_seal(7), 5, ((0, 2),), 3, 6, (("U1", 4),), 7)
    expired = replace(kept, rows_from_us=6)
    assert [SourceFrontiers.from_json(each.to_json()) for each in (kept, expired)] == [kept, expired]
    older = '{"arrangement":%s,"reached_us":5,"landed":[[0,2]],"landed_through":3}'
    text = older % json.dumps(kept.arrangement.to_json())
    assert SourceFrontiers.from_json(text) == replace(kept, published_us=0, obsolete=(), horizon_us=NO_HORIZON_US)
