"""The verdict of a lake server's probe, over answers at given times."""

from __future__ import annotations

import pytest

from spark_jobs.server.liveness import (
    FAILING_S,
    SILENT_S,
    STUCK_S,
    WITH_TASK,
    WITHOUT_TASK,
    Executors,
    Liveness,
    Remarks,
)

BUSY, IDLE = (lambda: True), (lambda: False)


@pytest.fixture
def answering() -> Liveness:
    """Of a server that has answered both statements at 0 s."""
    liveness = Liveness(-100, 900)
    for statement in (WITHOUT_TASK, WITH_TASK):
        assert liveness.answer(statement, 0) is None
    return liveness


def test_a_server_may_take_its_time_to_start_and_no_more() -> None:
    liveness = Liveness(0, 900)
    assert liveness.answer(WITHOUT_TASK, 500, "connection refused") is None
    assert liveness.answer(WITHOUT_TASK, 899, "connection refused") is None
    assert liveness.silence(899, executes=IDLE) is None
    assert liveness.silence(900, executes=BUSY) == "no statement was answered since it was started"


def test_statements_with_tasks_that_fail_are_a_death_though_others_are_answered(answering: Liveness) -> None:
    assert answering.answer(WITH_TASK, 10, "RejectedExecutionException") is None
    assert answering.answer(WITHOUT_TASK, 10 + FAILING_S) is None
    reason = answering.answer(WITH_TASK, 10 + FAILING_S, "RejectedExecutionException")
    assert reason == "statements have failed for 30 s, the last with: RejectedExecutionException"


def test_a_failure_between_answers_is_none(answering: Liveness) -> None:
    assert answering.answer(WITH_TASK, 10, "an error") is None
    assert answering.answer(WITH_TASK, 20) is None
    assert answering.answer(WITH_TASK, 10 + FAILING_S, "an error") is None


def test_a_busy_server_lets_statements_wait_and_an_idle_one_does_not(answering: Liveness) -> None:
    answering.answer(WITHOUT_TASK, STUCK_S)
    assert answering.silence(STUCK_S, executes=BUSY) is None
    reason = answering.silence(STUCK_S, executes=IDLE)
    assert reason == "no statement with a task was answered for 60 s, and no task runs"


def test_a_cluster_gets_time_to_replace_executors_and_a_server_without_any_is_dead() -> None:
    liveness = Liveness(0, 900, stuck_s=120, stuck_with="it has no executor")
    executors = Executors(0, 120)
    for statement in (WITHOUT_TASK, WITH_TASK):
        liveness.answer(statement, 0)
    # long tasks, then a worker that is killed and replaced
    for now, present in ((300, True), (301, False), (419, False), (420, True), (421, False), (539, False)):
        executors.look(now, present=present)
        liveness.answer(WITHOUT_TASK, now)
        assert liveness.silence(now, executes=lambda: executors.work) is None, now
    executors.look(540, present=False)
    reason = liveness.silence(540, executes=lambda: executors.work)
    assert reason == "no statement with a task was answered for 540 s, and it has no executor"


def test_a_server_that_says_nothing_is_dead_however_busy(answering: Liveness) -> None:
    assert answering.silence(SILENT_S - 1, executes=BUSY) is None
    assert answering.silence(SILENT_S, executes=BUSY) == "no statement was answered for 180 s"


def test_a_statement_with_a_task_answers_for_both(answering: Liveness) -> None:
    answering.answer(WITH_TASK, SILENT_S)
    assert answering.silence(SILENT_S + 1, executes=IDLE) is None


def test_the_log_has_the_first_answer_and_each_change_and_no_failure_of_the_start() -> None:
    remarks, refused = Remarks(100), "Could not connect to any of [('127.0.0.1', 10000)]"
    answers = [
        (WITHOUT_TASK, 101, refused),
        (WITH_TASK, 101, refused),
        (WITHOUT_TASK, 134, None),
        (WITH_TASK, 135, None),
        (WITHOUT_TASK, 144, None),
        (WITH_TASK, 150, "RejectedExecutionException"),
        (WITH_TASK, 160, "RejectedExecutionException"),
        (WITH_TASK, 170, None),
    ]
    assert [remark for answer in answers if (remark := remarks.remark_on(*answer))] == [
        "the server gave its first answer after 34 s, to: SELECT 1",
        f"{WITH_TASK} failed: RejectedExecutionException",
        f"{WITH_TASK} is answered again",
    ]
