"""What listed files say against the ledger, without reading one."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import RETRACTED, UNREADABLE, Version
from spark_jobs.landing.survey import Survey, survey, survey_retraction
from spark_jobs.sources import first_row_id


def listed(*names: str, checksum: str = "one", seq_no: int = 0) -> list[LandingFile]:
    paths = [f"{seq_no}/{name}" for name in names]
    return [LandingFile(seq_no, path, first_row_id(seq_no, path), 1, checksum, 0, "") for path in paths]


def landed(*names: str, checksum: str = "one", seq_no: int = 0) -> dict[str, Version]:
    return {v.path: v for v in (Version.of(f, 9) for f in listed(*names, checksum=checksum, seq_no=seq_no))}


def work(found: Survey) -> tuple[list[str], list[str]]:
    """Files to read and those to take back."""
    return [file.path for file in found.read], [version.path for version in found.retracted]


def test_new_files_are_read_and_landed_ones_are_known() -> None:
    found = survey(listed("a", "b", "c"), landed("a", "b"))
    assert work(found) == (["0/c"], [])
    assert (found.unchanged, found.only_adds, found.changed) == (2, True, [])
    assert not survey(listed("a", "b"), landed("a", "b")).has_work


def test_other_bytes_are_read_anew_and_files_that_join_leave_the_others_alone() -> None:
    found = survey([*listed("a", checksum="two"), *listed("a", "b")[1:]], landed("a", "b"))
    assert (work(found), found.changed) == ((["0/a"], []), ["0/a"])
    joined = survey(listed("0", "a", "aa", "b"), landed("a", "b"))
    assert (work(joined), joined.only_adds) == ((["0/0", "0/aa"], []), True)


def test_a_landed_file_that_is_gone_stays() -> None:
    assert not survey(listed("b"), landed("a", "b")).has_work
    assert work(survey(listed("b", "c"), landed("a", "b"))) == (["0/c"], [])


def test_files_are_read_in_the_order_of_drops_and_names() -> None:
    assert work(survey([*listed("b", seq_no=1), *listed("c", "b")], {}))[0] == ["0/b", "0/c", "1/b"]


def test_a_retraction_concerns_its_file_alone_and_lasts_until_the_bytes_change_or_a_run_names_the_file() -> None:
    before = landed("a", "b", "c")
    found = survey_retraction(listed("a", "b", "c"), before, {"0/b"})
    assert (work(found), found.unchanged) == (([], ["0/b"]), 2)
    after = {**before, "0/b": replace(before["0/b"], kind=RETRACTED)}
    assert not survey(listed("a", "b", "c"), after).has_work
    assert not survey_retraction(listed("a", "b", "c"), after, {"0/b"}).has_work
    changed = [*listed("a"), *listed("a", "b", checksum="two")[1:], *listed("a", "b", "c")[2:]]
    assert work(survey(changed, after)) == (["0/b"], [])
    assert work(survey(listed("a", "b", "c"), after, chosen={"0/b"}, brought_back=True)) == (["0/b"], [])
    assert not survey(listed("a", "b", "c"), after, chosen={"0/b"}, again={"0/b"}).read


def test_files_that_are_asked_for_again_are_read_though_nothing_changed() -> None:
    assert work(survey(listed("a", "b"), landed("a", "b"), again=None))[0] == ["0/a", "0/b"]
    assert work(survey(listed("a", "b", "c"), landed("a", "b"), chosen={"0/a"}, again={"0/a"})) == (["0/a"], [])


def test_a_version_that_could_not_be_read_is_not_read_twice() -> None:
    before = {path: replace(v, kind=UNREADABLE) for path, v in landed("a").items()}
    assert not survey(listed("a"), before).has_work
    assert work(survey(listed("a", checksum="two"), before))[0] == ["0/a"]


def test_a_file_keeps_the_row_ids_that_the_ledger_says_whatever_they_are_made_of() -> None:
    ranked = {p: replace(v, first_row_id=1, last_row_id=2**29 - 1) for p, v in landed("a", "b").items()}
    gone = {"0/b": replace(ranked["0/b"], kind=RETRACTED)}
    found = survey(listed("a", "b", checksum="two"), ranked | gone)
    assert [file.first_row_id for file in found.read] == [1, 1]
    # taken back by an older version, which has given its ids to another file
    gone = {"0/b": replace(gone["0/b"], first_row_id=None, last_row_id=None)}
    found = survey(listed("a", "b", checksum="two"), ranked | gone)
    assert [file.first_row_id for file in found.read] == [1, first_row_id(0, "0/b")]


def test_a_file_that_became_shorter_keeps_the_ids_that_its_rows_had() -> None:
    (file,) = listed("a")
    long = Version.of(file, 9)
    assert (long.first_row_id, long.last_row_id) == (file.first_row_id, file.first_row_id + 8)
    assert Version.of(file, 2, long).last_row_id == long.last_row_id
    assert Version.of(file, 11, long).last_row_id == file.first_row_id + 10
    assert Version.of(file, 0).last_row_id == file.first_row_id - 1
    assert Version.of(file, 11, long).same_as(long)
