"""The replay runner: plays cases, compares their answers, prints the mismatches and the counts.

Holds no rule of its own: each op is a thin call in the kind's player, and what the ops mean is in `spark_jobs` alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.errors import TidemarkError
from tests.replaying.cases import ACCEPTED, Case, FormError, Step, read_cases
from tests.replaying.matching import consolidated, is_refusal, matches
from tests.replaying.protocol import Json, Player, UnknownOp

KINDS = ("arrangement", "corrections", "chunks")

UNCHANGED = "no state change on refusal"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A step whose answer is not what its case expects."""

    case: str
    step: int
    op: str
    want: Json
    got: Json

    def line(self) -> str:
        """The line that is printed."""
        return f"MISMATCH {self.case} step {self.step} {self.op} want {_compact(self.want)} got {_compact(self.got)}"


def main(arguments: Sequence[str]) -> int:
    """Replay what the arguments name, print the mismatches and counts; returns the exit code."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        cases = [case for path in options.files for case in read_cases(path)]
    except FormError as error:
        sys.stderr.write(f"replay: {error}\n")
        return 2
    player: Player = importlib.import_module(f"tests.replaying.{options.kind}").Player()
    normal = consolidated if options.consolidate and options.kind == "arrangement" else _as_it_is
    n_mismatches = 0
    for case in cases:
        if case.tags.isdisjoint(options.skip):
            for mismatch in replay(player, case, normal):
                n_mismatches += 1
                print(mismatch.line())
    steps = [step for case in cases for step in case.steps]
    checked = sum(step.expect is not ACCEPTED for step in steps)
    print(f"{len(cases)} vectors, {len(steps)} steps ({checked} checked), {n_mismatches} mismatches")
    return 1 if n_mismatches else 0


def replay(player: Player, case: Case, normal: Callable[[Json], Json]) -> Iterator[Mismatch]:
    """Play one case from a new implementation; `normal` brings wanted and given values into the form to compare."""
    player.reset()
    for i, step in enumerate(case.steps):
        before = player.state()
        accepted, got = _play(player, step)
        if not _as_expected(step.expect, accepted, got, normal):
            want = "accepted" if step.expect is ACCEPTED else step.expect
            yield Mismatch(case.name, i, step.op, want, got)
        if not accepted and is_refusal(got) and player.state() != before:
            yield Mismatch(case.name, i, step.op, UNCHANGED, "state changed")


def _play(player: Player, step: Step) -> tuple[bool, Json]:
    """Whether the step was accepted, and its result, its refusal, or in words what else happened."""
    try:
        return True, player.play(step.op, step.args)
    except TidemarkError as refusal:
        return False, {"error": refusal.as_json()}
    except UnknownOp:
        return False, "unknown op"
    except Exception as error:  # any failure of an op is a mismatch of its step; the case goes on
        return False, f"{type(error).__name__}: {error}"


def _as_expected(expect: Json, accepted: bool, got: Json, normal: Callable[[Json], Json]) -> bool:
    if expect is ACCEPTED:
        return accepted
    if is_refusal(expect):
        return not accepted and matches(expect, got)
    return accepted and matches(normal(expect), normal(got))


def _as_it_is(value: Json) -> Json:
    return value


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), default=repr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="replay.py", description="Replay case files against the in-memory implementations.", allow_abbrev=False
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--skip", action="append", default=[], metavar="TAG", help="leave out cases with this tag")
    parser.add_argument("--consolidate", action="store_true", help="compare lists of updates consolidated")
    return parser
