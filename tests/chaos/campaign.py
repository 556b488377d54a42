"""A campaign of faults against runs of seven days of flights and weather, each followed by the way on of README.

What the days publish undisturbed is kept beside this file (`KEEP_GOLDEN=1` runs them and keeps it anew). `python -m
tests.chaos.campaign` (`make chaos`) runs them on new lakes, again and again, with a fault in each run and some between
runs. After each fault: the same command again; if that fails, `tidemark up` and again; if that fails, `tidemark doctor
--repair` and again. A lake server whose folders are lost is started anew by itself. Then every published table must say
what the undisturbed lake says, the audit must pass, and no command may have printed a raw traceback or taken the fault
for a defect. A reader asks for joined names all the while, and is told nothing but publications: not even for a moment
may a server that is there refuse it, unless a folder was lost or the disk is full.

TIDEMARK_CHAOS_SEED, TIDEMARK_CHAOS_FAULTS (200) and TIDEMARK_CHAOS_SECONDS (none) say which, how many, and how long.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyhive import hive

from spark_jobs.config import CHECKOUT
from tests.chaos import faults
from tests.chaos.account import Account, Fault
from tests.chaos.days import bring_back, day_of, histories, must, run_of, write_sources
from tests.chaos.outputs import Output
from tests.chaos.published import (
    CHAINED,
    JOINED,
    NAMES,
    Bag,
    Days,
    bags,
    columns_of,
    differences,
    keep,
    kept,
    rows_off,
    statement,
)
from tests.chaos.refusals import Refusal
from tests.chaos.site import Site
from tests.chaos.way import follow

STAGES = ("land", "seal", "window", "compact", "publish")
MOMENT_S = {"land": 2.0, "seal": 1.0, "window": 1.0, "compact": 1.0, "publish": 8.0}
"""Seconds into a stage up to which a fault strikes; a stage of a small day is about as long."""


@dataclass(frozen=True)
class Plan:
    """How much a campaign does. `days`: of each lake. `sources`: in the order of their runs."""

    seed: int
    faults: int
    seconds: float = float("inf")
    days: int = 7
    sources: tuple[str, ...] = ("flights", "weather")
    audits: bool = True
    kinds: tuple[str, ...] = ()
    """Only faults of these kinds; empty: all."""


class Campaign:
    """Strikes, follows the way on, and compares."""

    def __init__(self, plan: Plan, folder: Path, tell: Callable[[str], None] = print) -> None:
        self.plan, self.folder, self.tell = plan, folder, tell
        self.chance = random.Random(plan.seed)
        self.account = Account(plan.seed)
        self.begun = time.monotonic()
        self.wanted: Days = {}
        self.columns: dict[str, list[str]] = {}
        self.exact = dict.fromkeys(plan.sources, True)
        self.lakes = 0
        self.reads = ""
        self.known: set[tuple[str, ...]] = set()
        self.sources = write_sources(folder)

    @property
    def over(self) -> bool:
        """Whether faults or time are used up."""
        return len(self.account.faults) >= self.plan.faults or time.monotonic() - self.begun > self.plan.seconds

    def run(self) -> Account:
        """All of it."""
        self.tell(f"seed {self.plan.seed}")
        if os.environ.get("KEEP_GOLDEN"):
            with self.site() as site:
                keep(self.undisturbed(site))
            self.tell(f"the undisturbed lake after {time.monotonic() - self.begun:.0f} s")
        self.wanted = kept()
        while not self.over:
            with self.site() as site, self.reading(site):
                self.days(site)
        self.account.seconds = time.monotonic() - self.begun
        return self.account

    def on(self, site: Site) -> Account:
        """One lake, in which nothing of its sources has run."""
        self.tell(f"seed {self.plan.seed}")
        self.wanted = kept()
        with self.reading(site):
            self.days(site)
        self.account.seconds = time.monotonic() - self.begun
        return self.account

    @contextmanager
    def site(self) -> Iterator[Site]:
        """A new lake, and its end."""
        self.lakes += 1
        site = Site(self.folder / f"lake{self.lakes}", self.sources, self.folder / "landing")
        try:
            must(site.do("up", "--no-airflow"))
            if not (self.folder / "landing").exists():
                must(site.do("prepare", "--from", day_of(1), "--to", day_of(self.plan.days)))
            yield site
        finally:
            site.close()

    # --- what must be so --------------------------------------------------------------------------------------------
    def undisturbed(self, site: Site) -> Days:
        """Run the days one after the other; what is published after each."""
        wanted: dict[str, list[Mapping[str, Bag]]] = {source: [{}] for source in self.plan.sources}
        for number in range(1, self.plan.days + 1):
            for source in self.plan.sources:
                must(site.do(*run_of(source, number)))
                wanted[source].append(self.published(site, source))
        return wanted

    def learn(self, site: Site, source: str) -> None:
        """Which columns the names of a source have, once they stand."""
        if not set(NAMES[source]) <= self.columns.keys():
            self.columns |= columns_of(site.ask, NAMES[source])

    def published(self, site: Site, source: str) -> dict[str, Bag]:
        """What readers are told of a source."""
        self.learn(site, source)
        published = bags(site.ask(statement(self.columns, NAMES[source])))
        return published | histories(site, source, CHAINED.get(source, ()))

    @contextmanager
    def reading(self, site: Site) -> Iterator[None]:
        """Have a reader ask for joined names meanwhile; then look at what it was told."""
        first = self.plan.sources[0]
        self.known = {joined(day, first) for day in self.wanted[first][1:]}
        file = site.folder / "reads.jsonl"
        # the names stand from the first publication on
        must(site.do(*run_of(first, 1)))
        self.learn(site, first)
        self.reads = statement(self.columns, dict.fromkeys(JOINED[first], ""))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.reader", str(file), "1"],
            env=site.installation.environment,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(self.reads)
        process.stdin.close()
        try:
            yield
        finally:
            process.kill()
            process.wait()
            self.look_at_reads(file)

    def look_at_reads(self, file: Path) -> None:
        """Count reads, and keep those that say what no publication says."""
        for line in file.read_text().splitlines() if file.exists() else ():
            read = json.loads(line)
            if "error" in read:
                self.look_at_refusal(Refusal.of(read))
                continue
            self.account.reads += 1
            if joined(bags(read["rows"]), self.plan.sources[0]) not in self.known:
                self.account.unaudited.append(line)

    def look_at_refusal(self, refusal: Refusal) -> None:
        """Count a read without an answer, and keep one that a server refused which owed it."""
        if refusal.no_answer:
            self.account.unanswered_reads += 1
        elif refusal.excused_by(self.account.faults):
            self.account.excused_reads += 1
        else:
            self.account.refused.append(refusal.message)

    def know(self, site: Site, source: str) -> None:
        """Take what is published now, while a drop is retracted, for a publication that readers may see: none of the
        undisturbed lake's, but audited."""
        if source == self.plan.sources[0] and site.serves() and site.do("audit", source).ok:
            self.known.add(joined(bags(site.ask(self.reads)), source))

    # --- lakes with faults ------------------------------------------------------------------------------------------
    def days(self, site: Site) -> None:
        """Run the days with a fault in each run and some between them."""
        self.exact = dict.fromkeys(self.plan.sources, True)
        for number in range(1, self.plan.days + 1):
            for source in self.plan.sources:
                if (source, number) == (self.plan.sources[0], 1):
                    continue
                if self.over:
                    return
                self.fault_in_run(site, source, number)
                if self.chance.random() < 0.3 and not self.over:
                    self.fault_between(site, source, number)

    def fault_in_run(self, site: Site, source: str, number: int) -> None:
        """One fault in the run of a day, the first of that day."""
        kind = self.kind(faults.IN_RUN)
        if kind == "full disk" and not site.disk.mounted:
            kind = "kill of the command"
        with self.fault(kind, site) as fault:
            command = run_of(source, number)
            if kind == "commit":
                point = faults.point(self.chance)
                output, table = site.do_with_point(point, *command)
                fault.kind, fault.stage = faults.POINT_NAMES[str(point["does"])], "at a commit"
                fault.what = f"commit {point['commit']}, {table or 'after the last'} of {source}"
            elif kind == "two at once":
                output = self.two_at_once(site, fault, source, number)
            else:
                output = self.struck(site, fault, faults.STRIKES[kind][1], source, command)
            fault.ended = output.error
            follow(site, fault, command)
            if "a retraction" in fault.what:
                follow(site, fault, bring_back(source, number))
            self.compare(site, fault, {source: number})

    def struck(self, site: Site, fault: Fault, strike: faults.Strike, source: str, command: tuple[str, ...]) -> Output:
        """A run that a fault strikes in a stage."""
        stage = self.chance.choice(STAGES)
        before = site.token(source)
        begun = site.start(*command, proxy=fault.kind == "cut connections")
        # each stage takes a token when it begins
        reached = site.wait_for(lambda: site.token(source) > before + STAGES.index(stage), begun)
        fault.stage = stage if reached else "after its end"
        faults.pause(self.chance, MOMENT_S[stage])
        fault.what = f"{strike(site, self.chance, begun)} during {' '.join(command)}"
        output = site.end(begun)
        site.disk.free()
        return output

    def two_at_once(self, site: Site, fault: Fault, source: str, number: int) -> Output:
        """A run, and one or two other commands beside it."""
        stage = self.chance.choice(STAGES)
        names = self.chance.sample(list(faults.BESIDE), self.chance.choice([1, 1, 2]))
        other = next((name for name in self.plan.sources if name != source), source)
        words = {"source": source, "other": other, "day": day_of(number), "backup": str(site.folder / "backup")}
        before = site.token(source)
        begun = site.start(*run_of(source, number))
        reached = site.wait_for(lambda: site.token(source) > before + STAGES.index(stage), begun)
        fault.stage = stage if reached else "after its end"
        fault.what = f"{' and '.join(names)} beside the run of {source}"
        beside = [site.start(*(part.format(**words) for part in faults.BESIDE[name])) for name in names]
        output = site.end(begun)
        ends = [site.end(command).error for command in beside]
        fault.what += f", which ended: {', '.join(ends)}"
        if "a retraction" in names:
            self.exact[source] = False
            self.know(site, source)
        if "a run of the other source" in names:
            must_follow = run_of(other, number)
            follow(site, fault, must_follow)
        return output

    def fault_between(self, site: Site, source: str, number: int) -> None:
        """A loss between commands, or a fault in a command that is no run; what is published stays."""
        others: dict[str, tuple[str, ...]] = {
            "maintain": ("maintain", source),
            "backup": ("backup", str(site.folder / "backup")),
            "doctor --repair": ("doctor", "--repair"),
            "retract": ("retract", source, "--drop", day_of(number)),
        }
        kind = self.kind(faults.BETWEEN)
        with self.fault(kind, site) as fault:
            fault.stage = "between runs"
            if kind in others:
                fault.kind = f"kill of {kind}"
                command = others[kind]
                begun = site.start(*command)
                faults.pause(self.chance, 6.0)
                faults.kill_command(site, self.chance, begun)
                fault.what = f"kill -9 of {' '.join(command)}"
                fault.ended = site.end(begun).error
                follow(site, fault, command)
                if kind == "retract":
                    self.exact[source] = False
                    self.know(site, source)
                    follow(site, fault, bring_back(source, number))
            else:
                fault.what = (
                    faults.lose(site, self.chance)
                    if kind == "loss of a folder"
                    else faults.kill_part("lake")(site, self.chance, None)
                )
                follow(site, fault, run_of(source, number))
            self.compare(site, fault, {source: number})

    def kind(self, weights: Mapping[str, int]) -> str:
        """Some kind, those that are asked for alone."""
        asked = {kind: weight for kind, weight in weights.items() if not self.plan.kinds or kind in self.plan.kinds}
        chosen = asked or weights
        return self.chance.choices(list(chosen), list(chosen.values()))[0]

    # --- the way on, and what must be so then -----------------------------------------------------------------------
    @contextmanager
    def fault(self, kind: str, site: Site) -> Iterator[Fault]:
        """One fault, told once it is over."""
        fault = Fault(len(self.account.faults) + 1, kind, "", "", since=time.time())
        site.outputs.clear()
        try:
            yield fault
        except Exception:  # the campaign goes on; whatever it was counts as not survived
            fault.problems.append(traceback.format_exc())
        site.disk.free()
        fault.problems += [problem for output in site.outputs if (problem := output.problem())]
        fault.until = time.time()
        self.account.faults.append(fault)
        self.tell(fault.line)
        for problem in fault.problems:
            self.tell(f"     {problem}")

    def compare(self, site: Site, fault: Fault, days: Mapping[str, int]) -> None:
        """Every published table against the undisturbed lake's, and the audit, once the server has its folders."""
        if site.wait_for_folders():
            fault.way += ("waiting",)
        if not site.serves():
            fault.way += ("up",)
            up = site.do("up", "--no-airflow")
            if not up.ok:
                fault.problems.append(f"`tidemark up` ended with {up.code}:\n{up.text[-2000:]}")
                return
        for source, number in days.items():
            wrong, off = self.wrong(site, source, number)
            if wrong:
                fault.what += f" (before `doctor --repair`: {wrong})"
                # as `doctor` says of what only a server that starts makes anew
                fault.way += ("up", "doctor")
                site.do("up", "--no-airflow")
                site.do("doctor", "--repair")
                wrong, off = self.wrong(site, source, number)
            fault.problems += [f"{name}: {what}" for name, what in wrong.items()]
            fault.rows_off += off
            if self.plan.audits:
                audit = site.do("audit", source)
                if not audit.ok:
                    fault.problems.append(f"the audit of {source}:\n{audit.text[-2000:]}")

    def wrong(self, site: Site, source: str, number: int) -> tuple[dict[str, str], int]:
        """What a source publishes otherwise than the undisturbed lake after so many days; rows lost or doubled."""
        wanted = self.wanted[source][number]
        try:
            published = self.published(site, source)
        except hive.Error as refusal:
            return {"the names": str(refusal)[:300]}, 0
        exact = self.exact[source]
        return differences(published, wanted, exact=exact), rows_off(published, wanted, exact=exact)


def joined(published: Mapping[str, Bag], source: str) -> tuple[str, ...]:
    """What the names say that one publication shows together."""
    return tuple(published[name].values for name in JOINED[source])


def seed_of_environment(default: int | None = None) -> int:
    """The seed that the environment names, else `default`, else any."""
    seed = os.environ.get("TIDEMARK_CHAOS_SEED")
    if seed:
        return int(seed)
    return random.randrange(2**32) if default is None else default


def plan_of_environment() -> Plan:
    """The campaign that is asked for."""
    return Plan(
        seed=seed_of_environment(),
        faults=int(os.environ.get("TIDEMARK_CHAOS_FAULTS") or 200),
        seconds=float(os.environ.get("TIDEMARK_CHAOS_SECONDS") or "inf"),
    )


def main() -> int:
    """A campaign as the environment asks for it; 1 if a fault was not survived."""
    # what has been started ends with the campaign, however that ends
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="tidemark-chaos-") as folder:
        account = Campaign(plan_of_environment(), Path(folder), lambda line: print(line, flush=True)).run()
    print(account)
    return int(bool(account.broken))


if __name__ == "__main__":
    sys.exit(main())
