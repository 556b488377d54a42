"""Files in quarantine that never were data, or are gone: closed with a reason, kept, open again once they change."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.plans.replay import Asked, dismiss, quarantined_records, reasons, replay_of
from spark_jobs.sources import load_source
from tests.jobs.harness import Reading, run, write_lines, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

ANY = Asked(state=None)


def test_dismissed_files_are_kept_and_open_again_once_they_change(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    good = Reading(0, 10, "a", 1).line()
    wrong = [json.dumps({**json.loads(good), "id": str(n), "load": text}) for n, text in enumerate(("x", "y", "x"))]
    write_lines(home, 0, [good, *wrong])
    notes = write_lines(home, 0, ["bring milk", "and bread"], name="notes.txt")
    run(lake, home, 0, 0)
    source = load_source(home.sources / "meters.yml")

    def states(asked: Asked = ANY) -> Counter[tuple[str, str]]:
        rows = quarantined_records(lake, source, asked).collect()
        return Counter((row.file.rsplit("/", 1)[1], row.replay_state) for row in rows)

    told = {
        (row["rule"], row["reason"]): (row["records"], row["example"])
        for row in reasons(quarantined_records(lake, source, ANY))
    }
    expectation = "column `load`: expected a whole number"
    assert told[("bad_int", expectation)] == (3, f"{expectation}, found 'x'")
    assert sum(count for count, _ in told.values()) == 5

    with pytest.raises(ParameterError, match="a reason"):
        dismiss(lake, source, Asked(), " ", "ada")
    path = notes.relative_to(home.landing_folder).as_posix()
    closed = dismiss(lake, source, Asked(file=path), "a shopping list", "ada")
    assert [(row["file"], row["records"]) for row in closed] == [(path, 2)]
    assert states() == {("a.ndjson", "open"): 3, ("notes.txt", "dismissed"): 2}
    assert states(Asked()) == {("a.ndjson", "open"): 3}
    (kept,) = quarantined_records(lake, source, Asked(file=path, state="dismissed")).limit(1).collect()
    assert (kept.because, kept.dismissed_by, bool(kept.dismissed_at)) == ("a shopping list", "ada", True)
    for asked in (
        lambda: dismiss(lake, source, Asked(file=path), "again", "ada"),
        lambda: replay_of(lake, source, Asked(file=path)),
    ):
        with pytest.raises(ParameterError, match="open records"):
            asked()

    # twice, by rule, of a file that is gone: nothing counts twice, and the gates of the next run hold
    dismiss(lake, source, Asked(rule="bad_int"), "gone", "ada")
    (home.landing_folder / path).with_name("a.ndjson").unlink()
    run(lake, home, 0, 0)
    assert states() == {("a.ndjson", "dismissed"): 3, ("notes.txt", "dismissed"): 2}

    notes.write_text("bring milk\nand butter\n")
    summaries = run(lake, home, 0, 0)
    assert (summaries[0]["changed_files"], summaries[0]["rejects"], summaries[0]["rejects_back"]) == ([path], 1, 1)
    assert states(Asked()) == {("notes.txt", "open"): 2}
    assert replay_of(lake, source, Asked(file=path)) is not None
