"""A scratch installation of one source: a source file, a landing folder and a lake of files, without any server.

All stages of a run work in this process, with gates and checks. `tidemark try` and `tidemark test` run sources in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.gates.frames import published_rows, states
from spark_jobs.jobs.pipeline import new_run_id
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.stage import attempt
from spark_jobs.landing.counted_here import open_rows
from spark_jobs.model import STAGES
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.tables import LATE, QUARANTINE
from spark_jobs.storage.lakes.file_lake import FileLake

NOBODY = -1
"""A token that no attempt has."""
_OF_HISTORY = ("known_from", "era", "token")


@dataclass(frozen=True)
class Ran:
    """One run of drops: the name of the last one, the run's id, and the summaries of its stages in order."""

    drop: str
    run_id: str
    stages: tuple[dict[str, Any], ...]

    def count(self, name: str) -> int:
        """A count of the stage `land`, such as `rows` or `rejects`."""
        return int(self.stages[0].get(name) or 0)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the run's stages."""
        return tuple(stage["token"] for stage in self.stages)


@dataclass(frozen=True)
class ScratchInstallation:
    """One source with its landing folder and its lake.

    Args:
        settings: its home, the folder of the source file and the landing folder; all are below one folder.
        source: the source.
        lake: its tables.
    """

    settings: Settings
    source: Source
    lake: FileLake

    @classmethod
    def make(cls, folder: Path, source: Source, text: str) -> Self:
        """Write the file of a source, which has this text, into an empty folder, and make an installation there."""
        for part in ("sources", "landing", "home"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "sources" / f"{source.name}.yml").write_text(text, encoding="utf-8")
        settings = Settings(
            home=folder / "home",
            lake=str(folder / "home" / "lake"),
            sources=folder / "sources",
            landing=str(folder / "landing"),
        )
        return cls(settings, source, FileLake(folder / "home" / "lake"))

    def place(self, seq_no: int, name: str) -> Path:
        """The place of a file of a drop, in a folder that is there. It is called otherwise than `name` if no file of
        the source may be called so."""
        folder, _, pattern = self.source.drops.path(self.source.path, seq_no).rpartition("/")
        path = self.settings.landing_folder / folder / name
        if not fnmatchcase(name, pattern):
            path = path.with_name(pattern.replace("*", path.stem))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run_drops(self, drops: range, request: Request = ALL) -> Ran:
        """Run all stages for some drops together.

        Raises:
            TidemarkError: a stage was refused, or a gate or check failed.
        """
        schedule = self.source.drops
        lo_us, hi_us = schedule.start(drops.start), schedule.start(drops.stop)
        label, run_id = schedule.label(drops.stop - 1), new_run_id("scratch")
        summaries = [
            attempt(
                *(stage, self.source, self.settings, self.lake),
                lo_us=lo_us,
                hi_us=hi_us,
                run_id=run_id,
                request=request,
            )
            for stage in STAGES
        ]
        return Ran(label, run_id, tuple(summaries))

    @property
    def publication(self) -> Publication:
        """The publication in force."""
        return publication.load(self.lake, self.source)

    def definition(self, name: str) -> Definition:
        """A window definition by its name."""
        return next(definition for definition in definitions(self.source) if definition.name == name)

    def windows(self, definition: Definition) -> pa.Table:
        """The published windows of a definition, in the order of their identity."""
        table = definition.table()
        columns = [name for name in table.column_names if name not in ("known_to", *_OF_HISTORY)]
        rows, _ = published_rows(self.lake, table, definition.identity, columns, self.publication, NOBODY, {})
        return rows.sort_by([(name, "ascending") for name in definition.identity])

    def new_windows(self, definition: Definition, ran: Ran) -> tuple[pa.Table, pa.Table]:
        """The windows that a run published, and of these the windows as they were published before."""
        windows = self.windows(definition)
        of_run = pc.is_in(windows["token"], value_set=pa.array(ran.tokens, pa.int64()))
        return windows.filter(of_run), self._before(definition, ran)

    def states(self) -> pa.Table:
        """The published states with a column for each component, in the order of entities."""
        table, _ = states(self.lake, self.source, [], self.publication, NOBODY)
        return table.sort_by([(self.source.entity, "ascending")])

    def late_rows(self, ran: Ran | None = None) -> pa.Table:
        """The published rows of `silver.late`: all that are listed, or those that a run listed."""
        where = visible_rows(self.publication)
        if ran is not None:
            where &= pc.field("token").isin(pa.array(ran.tokens, pa.int64()))
        columns = [name for name in LATE.column_names if name not in ("source", "known_from", "token")]
        rows = self.lake.stored(LATE, columns, where, {"source": [self.source.name]}).whole()
        same = [name for name in columns if name != "diff"]
        summed = rows.group_by(same).aggregate([("diff", "sum")])
        return summed.filter(pc.greater(summed["diff_sum"], 0)).select(same).sort_by([("row_id", "ascending")])

    def rejects(self) -> pa.Table:
        """The records in quarantine, in the order of files and lines."""
        same = ["seq_no", "file", "line", "rule", "reason", "raw"]
        left = open_rows(self.lake, self.source, QUARANTINE, same)
        return left.sort_by([(name, "ascending") for name in ("seq_no", "file", "line")])

    def verdicts(self, run_id: str) -> dict[str, str]:
        """The verdicts of a run's checks, by the name of the check."""
        rows = self.lake.records(RESULTS, (pc.field("source") == self.source.name) & (pc.field("run_id") == run_id))
        return {row["name"]: row["verdict"] for row in rows if row["kind"] in ("check", "suite")}

    def _before(self, definition: Definition, ran: Ran) -> pa.Table:
        """The windows that a run closed, as they were."""
        table = definition.table()
        same = [*definition.identity, "known_from"]
        of_run = pc.field("token").isin(pa.array(ran.tokens, pa.int64()))
        closed = self.lake.stored(table, same, of_run, {"era": [CLOSING]}).whole()
        rows = self.lake.stored(table, table.column_names, ~of_run, {"era": [LIVE]}).whole()
        places = rows.select(same).append_column("place", pa.array(range(rows.num_rows), pa.int64()))
        kept = places.join(closed, keys=same, join_type="left semi")["place"].sort()
        return rows.take(kept).sort_by([(name, "ascending") for name in definition.identity])
