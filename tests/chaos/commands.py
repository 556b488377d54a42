"""Commands that people start, struck while they work: each from a copy of one prepared home, each followed by the way
on, each compared with what the undisturbed command gives from the same copy.

A fault strikes at a random moment of the time that the undisturbed command took. The clock that jumps is that of all
processes of the installation: servers, command, Python workers (`tests.chaos.clock`).
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from spark_jobs.config import CHECKOUT
from spark_jobs.sample import prepare_sample
from tests.chaos import faults
from tests.chaos.account import Account, Fault
from tests.chaos.clock import Clock, has_compiler
from tests.chaos.days import CHAINS, day_of, histories, must
from tests.chaos.published import (
    NAMES,
    Bag,
    Published,
    bags,
    columns_of,
    differences,
    rows_off,
    statement,
)
from tests.chaos.site import Command, Site, remove
from tests.chaos.way import follow

SOURCE, NEW_NAME, ENVIRONMENT = "weather", "climate", "dev"
GONE = "XQZ"
"""The entity that is erased: LGA under a name that no source file and no model mentions, so nothing of it is left."""
ENTITIES = ("EWR", "JFK", GONE)
WINDOWS = """
windows:
  warm_hours:
    kind: sliding
    size: 3 hours
    key: origin
    time: time_hour
    aggregates: {hours: count(), warmest: max(temp), mean_wind: avg(wind_speed)}
    late: reemit
"""
WINDOW_NAMES = {"silver.warm_hours": "", "silver.late": "source = 'weather'"}
DAYS = 2
"""Of the prepared home; the backfill runs as many more."""
JUMP_S = 2 * 86_400
KEPT_H = 24
"""Hours that files without a reader stay: fewer than the clock jumps, so that a vacuum takes all it may."""
FAULTS = ("kill of the command", "full disk", "clock forward", "clock back")


@dataclass(frozen=True)
class Struck:
    """A command that is struck. `{backup}` in it is the folder of the prepared home's backup.

    verify: a command that must succeed afterwards. source: the name that its source has then. gone: an entity that has
    no history then. is_lost: the home has no lake and no servers before. keeps_home: it changes nothing but the backup,
    so the next command that does so needs no new copy and no new server.
    """

    name: str
    command: tuple[str, ...]
    verify: tuple[str, ...] = ()
    source: str = SOURCE
    gone: str = ""
    is_lost: bool = False
    keeps_home: bool = False


COMMANDS: Mapping[str, Struck] = {
    struck.name: struck
    for struck in (
        Struck("backfill", ("run", SOURCE, "--from", day_of(DAYS + 1), "--to", day_of(2 * DAYS), "--each")),
        Struck("maintain", ("maintain",)),
        Struck("backup", ("backup", "{backup}"), verify=("verify", "{backup}"), keeps_home=True),
        Struck("restore", ("restore", "{backup}"), is_lost=True),
        Struck("erase", ("erase", SOURCE, "--entity", GONE, "--because", "asked"), gone=GONE),
        Struck("promote", ("env", "promote", ENVIRONMENT, SOURCE)),
        Struck("rename", ("source", "rename", SOURCE, NEW_NAME), source=NEW_NAME),
    )
}


@dataclass(frozen=True)
class Undisturbed:
    """The published tables after a command that nothing struck, and the seconds that it took."""

    published: Published
    seconds: float


@dataclass
class Prepared:
    """A home with some days of weather, chains, a window, a backup and an environment; and a copy of all of it."""

    site: Site
    clock: Clock | None
    account: Account
    copies: Path
    columns: dict[str, list[str]] = field(default_factory=dict)
    undisturbed: dict[str, Undisturbed] = field(default_factory=dict)
    is_as_prepared: bool = False

    @property
    def backup(self) -> Path:
        """On the disk that a fault fills."""
        return self.site.disk.folder / "backup"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that commands change."""
        return self.site.settings.home, Path(self.site.settings.sources), self.backup

    def prepare(self) -> None:
        """Run the days, build the environment, back up, end the servers, keep a copy."""
        must(self.site.do("up", "--no-airflow"))
        must(self.site.do("run", SOURCE, "--from", day_of(1), "--to", day_of(DAYS), "--each"))
        must(self.site.do("env", "create", ENVIRONMENT, SOURCE))
        file = next((self.site.settings.home / "environments" / ENVIRONMENT).rglob(f"{SOURCE}.yml"))
        file.write_text(file.read_text().replace("size: 3 hours", "size: 5 hours"))
        must(self.site.do("env", "build", ENVIRONMENT, SOURCE))
        must(self.site.do("backup", str(self.backup)))
        must(self.site.do("down"))
        for folder in self.folders:
            _copy(folder, self.copies / folder.name)

    def begin(self, struck: Struck) -> None:
        """Everything as it was prepared, with its servers."""
        if struck.keeps_home and self.is_as_prepared and self.site.serves():
            self.site.outputs.clear()
            return
        must(self.site.do("down"))
        for folder in self.folders:
            remove(folder)
            _copy(self.copies / folder.name, folder)
        if struck.is_lost:
            for folder in (Path(self.site.settings.lake), self.site.settings.home / "leases"):
                remove(folder)
        else:
            must(self.site.do("up", "--no-airflow"))
        self.is_as_prepared = struck.keeps_home
        self.site.outputs.clear()

    def command(self, struck: Struck) -> tuple[str, ...]:
        return tuple(part.format(backup=self.backup) for part in struck.command)

    def run_undisturbed(self, struck: Struck) -> Undisturbed:
        """The command without a fault, once."""
        if struck.name not in self.undisturbed:
            self.begin(struck)
            begun = time.monotonic()
            must(self.site.do(*self.command(struck)))
            seconds = time.monotonic() - begun
            if struck.is_lost:
                must(self.site.do("up", "--no-airflow"))
            self.undisturbed[struck.name] = Undisturbed(self.published(struck), seconds)
            must(self.site.do("audit", struck.source))
        return self.undisturbed[struck.name]

    def published(self, struck: Struck) -> dict[str, Bag]:
        """The source's published tables, and its entities' histories, as readers get them after the command."""

        def named(text: str) -> str:
            return text if text.startswith("marts.") else text.replace(SOURCE, struck.source)

        names = {named(n): named(condition) for n, condition in {**NAMES[SOURCE], **WINDOW_NAMES}.items()}
        # an environment that is promoted changes none of the columns
        missing = [name for name in names if name not in self.columns]
        self.columns |= columns_of(self.site.ask, missing)
        entities = [entity for entity in ENTITIES if entity != struck.gone]
        return bags(self.site.ask(statement(self.columns, names))) | histories(self.site, struck.source, entities)

    # --- faults -----------------------------------------------------------------------------------------------------
    def strike(self, struck: Struck, kind: str, chance: Random) -> Fault:
        """The command under a fault, the way on, and what is wrong then."""
        wanted = self.run_undisturbed(struck)
        self.begin(struck)
        fault = Fault(len(self.account.faults) + 1, kind, struck.name, "", since=time.time())
        moment_s = chance.uniform(0, wanted.seconds)
        try:
            with self._moving_clock():
                begun = self.site.start(*self.command(struck))
                self._wait(begun, moment_s)
                ended_before = begun.process.poll() is not None
                what = self._strikes[kind](self.site, chance, begun)
                fault.what = f"{what} after {moment_s:.1f} of {wanted.seconds:.1f} s"
                fault.what += ", when it had ended" if ended_before else ""
                output = self.site.end(begun)
            self.site.disk.free()
            fault.ended = output.error
            if not output.ok:
                follow(self.site, fault, self.command(struck))
            self._compare(struck, fault, wanted.published)
        except Exception:  # whatever it was, the fault counts as not survived
            fault.problems.append(traceback.format_exc())
        finally:
            self.site.disk.free()
        fault.problems += [problem for output in self.site.outputs if (problem := output.problem())]
        fault.until = time.time()
        self.is_as_prepared &= not fault.problems
        self.account.faults.append(fault)
        return fault

    @property
    def _strikes(self) -> Mapping[str, faults.Strike]:
        return {
            "kill of the command": faults.kill_command,
            "full disk": faults.fill_disk,
            "clock forward": lambda *_: self._move(JUMP_S),
            "clock back": lambda *_: self._move(-JUMP_S),
        }

    def _move(self, seconds: int) -> str:
        assert self.clock is not None
        self.clock.move(seconds)
        return f"the clock of all processes {seconds:+} s"

    @contextmanager
    def _moving_clock(self) -> Iterator[None]:
        """The clock jumps back once the command has ended."""
        try:
            yield
        finally:
            if self.clock is not None:
                self.clock.move(0)

    def _wait(self, command: Command, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.site.wait_for(lambda: time.monotonic() >= deadline, command)

    def _compare(self, struck: Struck, fault: Fault, wanted: Published) -> None:
        if struck.is_lost or not self.site.serves():
            fault.way += ("up",)
            must(self.site.do("up", "--no-airflow"))
        published = self.published(struck)
        fault.problems += [f"{n}: {what}" for n, what in differences(published, wanted, exact=True).items()]
        fault.rows_off = rows_off(published, wanted, exact=True)
        for command in (struck.verify, ("audit", struck.source)):
            if command:
                output = self.site.do(*(part.format(backup=self.backup) for part in command))
                if not output.ok:
                    fault.problems.append(f"`{' '.join(command)}`:\n{output.text[-2000:]}")


def _copy(folder: Path, to: Path) -> None:
    """Copy a folder, but for the sockets of servers that have ended."""

    def sockets(place: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(place, name).is_socket()]

    shutil.copytree(folder, to, symlinks=True, ignore=sockets)


@contextmanager
def prepared_home(folder: Path, seed: int) -> Iterator[Prepared]:
    """A prepared home on a disk and with a clock of its own, where the machine lets it have them."""
    clock = Clock(folder) if has_compiler() else None
    sources = folder / "sources"
    sources.mkdir()
    text = (CHECKOUT / "dags" / "sources" / f"{SOURCE}.yml").read_text()
    (sources / f"{SOURCE}.yml").write_text(text + CHAINS + WINDOWS)
    for drop in prepare_sample(folder / "landing", last=dt.date(2013, 1, 2 * DAYS), sources=(SOURCE,)):
        Path(drop.path).write_text(Path(drop.path).read_text().replace("LGA", GONE))
    variables = clock.environment if clock else {}
    site = Site(folder, sources, folder / "landing", variables, file_retention_hours=KEPT_H)
    try:
        prepared = Prepared(site, clock, Account(seed), folder / "copies")
        prepared.prepare()
        yield prepared
    finally:
        site.close()
