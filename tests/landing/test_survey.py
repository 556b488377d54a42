"""What listed files say against the ledger, without reading one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import RETRACTED, UNREADABLE, Version
from spark_jobs.landing.survey import Survey, survey, survey_retraction
from spark_jobs.sources.drops import FILE_BITS, RowIdOverflowError


def listed(*names: str, checksum: str = "one", seq_no: int = 0) -> list[LandingFile]:
    return [LandingFile(seq_no, f"{seq_no}/{n}", rank, 1, checksum, 0, "") for rank, n in enumerate(names)]


def landed(*names: str, checksum: str = "one", seq_no: int = 0) -> dict[str, Version]:
    return {v.path: v for v in (Version.of(f) for f in listed(*names, checksum=checksum, seq_no=seq_no))}


def work(found: Survey) -> tuple[list[tuple[str, int]], list[tuple[str, int]], list[str]]:
    """Files to read and moved ones with the ranks they have now, and those to take back."""
    read = [(file.path, file.rank) for file in found.read]
    moved = sorted((version.path, rank) for version, rank in found.moved)
    return read, moved, [version.path for version in found.retracted]


def test_new_files_are_read_and_landed_ones_are_known():
    found = survey(listed("a", "b", "c"), landed("a", "b"))
    assert work(found) == ([("0/c", 2)], [], [])
    assert (found.known, found.only_adds, found.changed) == (2, True, [])
    assert not survey(listed("a", "b"), landed("a", "b")).has_work


def test_other_bytes_are_read_anew_and_a_file_that_joins_moves_those_behind_it():
    found = survey([*listed("a", checksum="two"), *listed("a", "b")[1:]], landed("a", "b"))
    assert (work(found), found.changed) == (([("0/a", 0)], [], []), ["0/a"])
    assert work(survey(listed("a", "aa", "b"), landed("a", "b"))) == ([("0/aa", 1)], [("0/b", 2)], [])


def test_a_landed_file_that_is_gone_keeps_its_place():
    assert not survey(listed("b"), landed("a", "b")).has_work
    assert work(survey(listed("b", "c"), landed("a", "b"))) == ([("0/c", 2)], [], [])


def test_a_drop_of_more_files_than_row_ids_have_room_for_is_refused_before_one_is_read():
    names = [f"{i:05}" for i in range((1 << FILE_BITS) + 1)]
    assert len(survey(listed(*names[:-1]), {}).read) == 1 << FILE_BITS
    with pytest.raises(RowIdOverflowError, match="land fewer files in a drop"):
        survey(listed(*names), {})


def test_drops_rank_their_files_on_their_own():
    found = survey([*listed("b"), *listed("a", "b", seq_no=1)], landed("b", seq_no=1))
    assert work(found) == ([("0/b", 0), ("1/a", 0)], [("1/b", 1)], [])


def test_a_retraction_moves_the_files_behind_and_lasts_until_the_bytes_change_or_a_run_names_the_file():
    before = landed("a", "b", "c")
    assert work(survey_retraction(listed("a", "b", "c"), before, {"0/b"})) == ([], [("0/c", 1)], ["0/b"])
    after = {
        "0/a": before["0/a"],
        "0/b": replace(before["0/b"], kind=RETRACTED),
        "0/c": replace(before["0/c"], rank=1),
    }
    assert not survey(listed("a", "b", "c"), after).has_work
    assert not survey_retraction(listed("a", "b", "c"), after, {"0/b"}).has_work
    changed = [*listed("a"), *listed("a", "b", checksum="two")[1:], *listed("a", "b", "c")[2:]]
    back = ([("0/b", 1)], [("0/c", 2)], [])
    assert work(survey(changed, after)) == back
    assert work(survey(listed("a", "b", "c"), after, chosen={"0/b"}, brought_back=True)) == back
    assert not survey(listed("a", "b", "c"), after, chosen={"0/b"}, again={"0/b"}).read


def test_files_that_are_asked_for_again_are_read_though_nothing_changed():
    assert work(survey(listed("a", "b"), landed("a", "b"), again=None))[0] == [("0/a", 0), ("0/b", 1)]
    found = survey(listed("a", "b", "c"), landed("a", "b"), chosen={"0/a"}, again={"0/a"})
    assert work(found) == ([("0/a", 0)], [], [])


def test_a_version_that_could_not_be_read_is_not_read_twice():
    before = {path: replace(v, kind=UNREADABLE) for path, v in landed("a").items()}
    assert not survey(listed("a"), before).has_work
    assert work(survey(listed("a", checksum="two"), before))[0] == [("0/a", 0)]
