"""The replay runner itself: it must see every kind of wrong answer, and refuse what is not a case file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import TidemarkError
from tests.replaying import arrangement
from tests.replaying.protocol import UnknownOp
from tests.replaying.runner import main

ROOT = Path(__file__).resolve().parents[2]


class Refused(TidemarkError):
    code = "refused"


class ScriptedPlayer:
    """Answers what the case's arguments say, so that the runner alone is under test."""

    def __init__(self) -> None:
        self.value = 0

    def reset(self) -> None:
        self.value = 0

    def state(self) -> object:
        return self.value

    def play(self, op: str, args: Mapping[str, Any]) -> Any:
        if op == "give":
            return args.get("value")
        if op == "add":
            self.value += 1
            return self.value
        if op in ("refuse", "refuse_and_change"):
            self.value += op == "refuse_and_change"
            raise Refused(expected="nothing", found="something", **args)
        if op == "crash":
            raise KeyError("ts")
        raise UnknownOp(op)


Replay = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Replay:
    """Replays steps as one case against the scripted player; gives the exit code and the lines of standard output."""
    monkeypatch.setattr(arrangement, "Player", ScriptedPlayer)

    def run(
        *steps: Mapping[str, Any], options: tuple[str, ...] = (), tags: tuple[str, ...] = ()
    ) -> tuple[int, list[str]]:
        file = tmp_path / "cases.json"
        file.write_text(json.dumps([{"name": "case", "tags": list(tags), "ops": steps}]))
        code = main(["arrangement", *options, str(file)])
        return code, capsys.readouterr().out.splitlines()

    return run


def give(value: Any, expect: Any) -> dict[str, Any]:
    return {"op": "give", "args": {"value": value}, "expect": expect}


def refuse(expect: Any, op: str = "refuse", **facts: Any) -> dict[str, Any]:
    return {"op": op, "args": facts, "expect": expect}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        (2**64 - 1, 2**64 - 1),
        ([1, [2]], [1, [2]]),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        (True, True),
    ],
)
def test_an_answer_as_expected_is_no_mismatch(replay: Replay, given: Any, wanted: Any) -> None:
    assert replay(give(given, wanted)) == (0, ["1 vectors, 1 steps (1 checked), 0 mismatches"])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (1, True),
        (True, 1),
        (0, False),
        ([0], [False]),
        (None, False),
        (0, None),
        ([], None),
        ({}, None),
        (2**64 - 1, 2**64 - 2),
        (2**53 + 1, 2**53),
        (1, "1"),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ([1, 1], [1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}),
        ({"a": None}, {"a": 0}),
        ({}, {"a": None}),
        ([1], {}),
        ([{"a": 1, "b": 2}], [{"a": 1}]),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}),
        ({"a": {"x": 1}}, {"a": {"x": True}}),
    ],
)
def test_a_wrong_answer_is_a_mismatch(replay: Replay, given: Any, wanted: Any) -> None:
    def compact(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    assert replay(give(given, wanted)) == (
        1,
        [
            f"MISMATCH case step 0 give want {compact(wanted)} got {compact(given)}",
            "1 vectors, 1 steps (1 checked), 1 mismatches",
        ],
    )


def test_a_refusal_matches_by_code_and_by_the_facts_that_are_given(replay: Replay) -> None:
    code, lines = replay(
        refuse({"error": {"code": "refused"}}, time=3, seal=[5]),
        refuse({"error": {"code": "refused", "time": 3}}, time=3, seal=[5]),
        refuse({"error": {"code": "refused", "seal": [5], "time": 3}}, time=3, seal=[5]),
    )
    assert (code, lines) == (0, ["1 vectors, 3 steps (3 checked), 0 mismatches"])


@pytest.mark.parametrize(
    "expect",
    [
        {"error": {"code": "another"}},
        {"error": {"code": "refused", "time": 4}},
        {"error": {"code": "refused", "time": True}},
        {"error": {"code": "refused", "at": 3}},
        None,
        {},
        3,
    ],
)
def test_another_refusal_or_an_expected_acceptance_is_a_mismatch(replay: Replay, expect: Any) -> None:
    code, lines = replay(refuse(expect, time=1))
    assert code == 1
    assert lines[0].endswith('got {"error":{"code":"refused","time":1}}')


def test_a_missing_refusal_is_a_mismatch(replay: Replay) -> None:
    assert replay(give({"error": {"code": "refused"}}, {"error": {"code": "refused"}}))[0] == 1
    assert replay(give(None, {"error": {"code": "refused"}}))[0] == 1


def test_without_expect_a_step_must_be_accepted_and_its_result_is_not_looked_at(replay: Replay) -> None:
    assert replay({"op": "add"}, {"op": "give", "args": {"value": 5}}) == (
        0,
        ["1 vectors, 2 steps (0 checked), 0 mismatches"],
    )
    code, lines = replay({"op": "refuse"}, {"op": "add", "expect": 1})
    assert (code, lines[-1]) == (1, "1 vectors, 2 steps (1 checked), 1 mismatches")


def test_a_changed_state_after_a_refusal_is_a_mismatch_of_its_own(replay: Replay) -> None:
    assert replay(refuse({"error": {"code": "refused"}}, op="refuse_and_change")) == (
        1,
        [
            'MISMATCH case step 0 refuse_and_change want "no state change on refusal" got "state changed"',
            "1 vectors, 1 steps (1 checked), 1 mismatches",
        ],
    )
    code, lines = replay(refuse(None, op="refuse_and_change"))
    assert (code, len(lines)) == (1, 3)


def test_an_unknown_op_and_a_crash_are_mismatches_and_the_case_goes_on(replay: Replay) -> None:
    code, lines = replay(
        {"op": "fly"},
        {"op": "fly", "expect": {"error": {"code": "refused"}}},
        {"op": "crash", "expect": {"error": {"code": "KeyError"}}},
        {"op": "add", "expect": 1},
        {"op": "add", "expect": 3},
    )
    assert code == 1
    assert lines == [
        'MISMATCH case step 0 fly want "accepted" got "unknown op"',
        'MISMATCH case step 1 fly want {"error":{"code":"refused"}} got "unknown op"',
        'MISMATCH case step 2 crash want {"error":{"code":"KeyError"}} got "KeyError: \'ts\'"',
        "MISMATCH case step 4 add want 3 got 2",
        "1 vectors, 5 steps (4 checked), 4 mismatches",
    ]


def test_each_case_starts_anew(tmp_path: Path, replay: Replay, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [{"name": name, "tags": [], "ops": [{"op": "add", "expect": 1}]} for name in ("first", "second")]
    file = tmp_path / "two.json"
    file.write_text(json.dumps(cases))
    assert main(["arrangement", str(file), str(file)]) == 0
    assert capsys.readouterr().out == "4 vectors, 4 steps (4 checked), 0 mismatches\n"


def test_skipped_cases_are_not_run_but_counted(replay: Replay) -> None:
    wrong = give(1, 2)
    assert replay(wrong, tags=("quirk", "derived"), options=("--skip=quirk",)) == (
        0,
        ["1 vectors, 1 steps (1 checked), 0 mismatches"],
    )
    assert replay(wrong, tags=("structure",), options=("--skip=quirk", "--skip=structure"))[0] == 0
    assert replay(wrong, tags=("derived",), options=("--skip=quirk",))[0] == 1


def test_consolidate_sums_lists_of_updates_at_the_top_and_in_fields(replay: Replay) -> None:
    raw = [["b", "x", 1, 1], ["a", "x", 2, 1], ["a", "x", 1, 1], ["a", "x", 1, 2], ["c", "x", 1, 1], ["c", "x", 1, -1]]
    summed = [["a", "x", 1, 3], ["a", "x", 2, 1], ["b", "x", 1, 1]]
    option = ("--consolidate",)
    assert replay(give(summed, raw), options=option)[0] == 0
    assert replay(give({"updates": raw, "seal": [1]}, {"updates": summed}), options=option)[0] == 0
    assert replay(give([], [["a", "x", 1, 1], ["a", "x", 1, -1]]), options=option)[0] == 0
    assert replay(give(summed, raw))[0] == 1
    assert replay(give([raw], [summed]), options=option)[0] == 1
    assert replay(give([[[0], [1], [0], 0]], [[[0], [1], [0], 0]]), options=option)[0] == 0
    assert replay(give(summed, [*summed, ["d", "x", 1, 1]]), options=option)[0] == 1


NOT_CASES = {
    "no JSON": "[{",
    "not an array": '{"name": "a", "ops": []}',
    "a case that is no object": "[3]",
    "no name": '[{"tags": [], "ops": []}]',
    "a name that is no string": '[{"name": 3, "tags": [], "ops": []}]',
    "a name twice": '[{"name": "a", "tags": [], "ops": []}, {"name": "a", "tags": [], "ops": []}]',
    "no ops": '[{"name": "a", "tags": []}]',
    "ops that are no array": '[{"name": "a", "tags": [], "ops": {}}]',
    "tags that are no array": '[{"name": "a", "tags": "quirk", "ops": []}]',
    "a tag that is no string": '[{"name": "a", "tags": [1], "ops": []}]',
    "a step that is no object": '[{"name": "a", "tags": [], "ops": ["add"]}]',
    "a step without op": '[{"name": "a", "tags": [], "ops": [{"expect": 1}]}]',
    "an op that is no string": '[{"name": "a", "tags": [], "ops": [{"op": 1}]}]',
    "args that are no object": '[{"name": "a", "tags": [], "ops": [{"op": "add", "args": [1]}]}]',
    "a number that is none": '[{"name": "a", "tags": [], "ops": [{"op": "add", "expect": NaN}]}]',
}


@pytest.mark.parametrize("content", NOT_CASES.values(), ids=NOT_CASES.keys())
def test_a_file_of_another_form_is_refused_before_anything_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    good, other = tmp_path / "good.json", tmp_path / "other.json"
    good.write_text('[{"name": "a", "tags": [], "ops": [{"op": "no_such_op"}]}]')
    other.write_text(content)
    assert main(["arrangement", str(good), str(other)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert str(other) in printed.err


def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latin = tmp_path / "latin.json"
    latin.write_bytes('[{"name": "é", "tags": [], "ops": []}]'.encode("latin-1"))
    for file in (tmp_path / "absent.json", tmp_path, latin):
        assert main(["arrangement", str(file)]) == 2
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [[], ["arrangement"], ["tables", "x.json"], ["arrangement", "--fast", "x.json"], ["arrangement", "--skip"]],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_says_so_on_standard_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    printed = capsys.readouterr()
    assert (exit_.value.code, printed.out) == (2, "")
    assert "usage" in printed.err


@pytest.mark.slow
def test_it_runs_by_path_from_any_directory(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    steps = [
        {"op": "seal", "args": {"ts": 2**64 - 1}, "expect": None},
        {"op": "seal", "args": {"ts": 1}, "expect": None},
    ]
    file.write_text(json.dumps([{"name": "greatest", "tags": ["derived"], "ops": steps}]))
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "replay.py"), "arrangement", "cases.json", "--skip=quirk"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.splitlines() == [
        "MISMATCH greatest step 1 seal want null got "
        '{"error":{"code":"seal_regression","seal":[18446744073709551615],"ts":1}}',
        "1 vectors, 2 steps (2 checked), 1 mismatches",
    ]
