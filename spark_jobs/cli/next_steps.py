"""The answer of `tidemark` without a command: the state of the installation, and the commands to go on with.

It reads the source files, the supervisor's state and small tables of the lake. It starts nothing and asks no server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize
from spark_jobs.storage.coordination.turns import current_run

if TYPE_CHECKING:
    from spark_jobs.portal.overview import SourceFacts
    from spark_jobs.sources import Source, SourceFileError, SourceFolder
    from spark_jobs.storage.coordination.turns import CurrentRun

MOST_STEPS = 8
"""The most steps that are listed; the others are counted."""

Line = tuple[str, str]
"""A part of the installation, and its state in words."""

_TRY = "guesses a source from your files and runs it in a scratch folder, without a server or Java"
_INIT = "writes a source file, guessed from a file of yours"
_DEMO = "runs a week of the sample: flights and weather of New York, through Airflow"


@dataclass(frozen=True)
class Step:
    """A command to type, after `tidemark `, and the reason for it. Of two steps that of the smaller weight is first."""

    command: str
    reason: str
    weight: int = 5


@dataclass
class Findings:
    """The lines about an installation, and the steps to take."""

    lines: list[Line] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def next_steps(settings: Settings) -> RenderableType:
    """The state of the installation and the next commands, as people read them."""
    findings = find(settings)
    width = max(len(name) for name, _ in findings.lines)
    lines = [Text(f"{name:<{width}}  {words}") for name, words in findings.lines]
    parts: list[RenderableType] = [*lines, Text(), Text("Next", style="bold")]
    for step in findings.steps[:MOST_STEPS]:
        parts += [
            Text(f"  tidemark {step.command}", style="cyan"),
            Padding(Text(step.reason), (0, 0, 0, 6), expand=False),
        ]
    more = len(findings.steps) - MOST_STEPS
    parts += [Text(f"  and {pluralize(more, 'more step')}, once these are done")] if more > 0 else []
    return Group(*parts, Text("\n`tidemark --help` lists all commands."))


def find(settings: Settings) -> Findings:
    """The state of an installation and the steps to take, the most urgent first."""
    findings = Findings([("home", str(settings.home)), ("sources", str(settings.sources))])
    folder = _folder(settings)
    if folder is None:
        findings.lines[-1] = ("sources", f"none in {settings.sources}")
        findings.steps = [Step("try FILE...", _TRY), Step(f"init {_short_path(settings.sources)} --from FILE", _INIT)]
        return findings
    for error in folder.errors:
        findings.steps.append(Step("check", _problems(error), 0))
    steps_of_files = {step.command for step in findings.steps}
    with_airflow = _look_at_servers(settings, findings)
    landed = [
        _look_at_source(settings, source, findings, with_airflow=with_airflow) for source in folder.sources.values()
    ]
    if not any(landed):
        findings.steps += [step for step in _first_steps(settings) if step.command not in steps_of_files]
    elif not findings.steps:
        findings.steps += [
            Step("sql", "queries what is published; \\d there lists the tables"),
            Step("open", "shows sources, runs, checks and marts in a browser"),
        ]
    findings.steps.sort(key=lambda step: step.weight)
    return findings


def _folder(settings: Settings) -> SourceFolder | None:
    """The source files; None if there are none."""
    from spark_jobs.sources import read_sources

    try:
        folder = read_sources(settings.sources)
    except ParameterError:  # there is no such folder
        return None
    return folder if folder.sources or folder.errors else None


def _first_steps(settings: Settings) -> Iterator[Step]:
    """The steps of an installation in which nothing has landed, and no file waits."""
    if settings.sources == CHECKOUT / "dags" / "sources":
        yield Step("try FILE...", _TRY, -1)
        yield Step("demo", _DEMO, 4)
    else:
        yield Step("check", "says whether the source files are right, before the first files come", 4)


def _look_at_servers(settings: Settings, findings: Findings) -> bool:
    """Add the servers' state; returns True if Airflow runs, whose schedule starts runs."""
    from spark_jobs.server.state import running_supervisor

    running = running_supervisor(settings)
    if running is None:
        findings.lines.append(("servers", "down"))
        findings.steps.append(
            # most other steps ask the server
            Step("up --no-airflow", "starts the lake server (about 30 s); `tidemark up` starts Airflow, too", 0)
        )
        return False
    from spark_jobs.code_version import code_version

    which = "lake server and Airflow" if running.airflow else "lake server"
    again = f"up{'' if running.airflow else ' --no-airflow'}"
    failed = [part.name for part in running.parts if part.condition == "failed"]
    findings.lines.append(("servers", f"{which} run" if running.airflow else f"{which} runs"))
    if failed:
        findings.steps.append(Step("doctor", f"{', '.join(failed)} ended again and again and was given up", 0))
    elif running.code != code_version() or running.setup != settings.environment():
        findings.steps.append(Step(again, "the servers run with older code or settings; this starts them anew", 1))
    return running.airflow


def _look_at_source(settings: Settings, source: Source, findings: Findings, *, with_airflow: bool) -> bool:
    """Add the state of a source; returns True if it has landed anything, or files wait."""
    if "://" in f"{settings.lake}{settings.landing}":
        findings.lines.append((source.name, "its lake or landing directory is remote and was not asked"))
        findings.steps.append(Step(f"status --drops {source.name}", "lists its drops"))
        return True
    current = current_run(settings.home / "leases", source.name)
    try:
        facts = _facts(settings, source, current)
        waiting = _drops_waiting(settings, source, facts)
    except Exception as error:  # a damaged lake must not hide what else there is to do
        from spark_jobs.failures import explain

        findings.lines.append((source.name, f"can't be read: {explain(error, settings).found}"))
        findings.steps.append(Step("doctor", f"the tables or files of {source.name} can't be read", -1))
        return True
    words = [
        "nothing is published" if facts is None or facts.reached is None else f"published up to {_end(source, facts)}"
    ]
    is_on_its_way = current is not None and (current.is_at_work or with_airflow)
    if current is not None and is_on_its_way and facts is None:
        words.append(f"{current.turn} is on its way")
    if waiting and not is_on_its_way:
        words.append(_waits(source, waiting))
        findings.steps.append(_run_them(source, waiting, with_airflow=with_airflow))
    for concern in [] if facts is None else facts.concerns:
        if concern.weight < 3:
            words.append(concern.words.partition(":")[0])
            findings.steps.append(Step(concern.command, f"{source.name}: {concern.words}", concern.weight))
    findings.lines.append((source.name, "; ".join(words)))
    return bool(waiting) or (facts is not None and bool(facts.runs))


def _facts(settings: Settings, source: Source, current: CurrentRun | None) -> SourceFacts | None:
    """The facts of a source; None if the lake is not there yet."""
    if not Path(settings.lake).is_dir():
        return None
    # importing what reads tables takes most of a second
    from spark_jobs.portal.held_lake import HeldLake
    from spark_jobs.portal.overview import source_facts
    from spark_jobs.storage.coordination.audit_notes import audit_note

    return source_facts(HeldLake(settings.lake), source, audit_note(settings.home, source.name), current)


def _drops_waiting(settings: Settings, source: Source, facts: SourceFacts | None) -> list[int]:
    """The drops with files after the newest one that has landed; none for a source that reads a table or a topic."""
    if source.extract is not None or (isinstance(settings.landing, Path) and not settings.landing.is_dir()):
        return []
    from spark_jobs.jobs.drops import waiting_drops
    from spark_jobs.storage.descriptions.times import micros

    landed_drops = [] if facts is None else [*facts.drops, *(hi - 1 for _, hi in facts.frontiers.landed)]
    return waiting_drops(
        settings, source, max(landed_drops, default=-1) + 1, source.drops.number_at(micros(datetime.now(UTC)))
    )


def _end(source: Source, facts: SourceFacts) -> str:
    """The label of the last drop that is published."""
    from spark_jobs.storage.descriptions.times import micros

    assert facts.reached is not None, "asked by the caller"
    return source.drops.label(source.drops.number_at(micros(facts.reached)) - 1)


def _waits(source: Source, waiting: list[int]) -> str:
    first, last = (source.drops.label(n) for n in (waiting[0], waiting[-1]))
    return f"the drop {first} waits" if len(waiting) == 1 else f"{len(waiting)} drops wait, {first} to {last}"


def _run_them(source: Source, waiting: list[int], *, with_airflow: bool) -> Step:
    if with_airflow:
        by_itself = "; Airflow runs them on its schedule, too" if source.dag.schedule == "every" else ""
        return Step(f"backfill {source.name} --only-missing", f"{source.name}: {_waits(source, waiting)}{by_itself}", 3)
    first, last = (source.drops.label(n) for n in (waiting[0], waiting[-1]))
    to = "" if first == last else f" --to {last}"
    return Step(f"run {source.name} --from {first}{to}", f"{source.name}: {_waits(source, waiting)}", 3)


def _problems(error: SourceFileError) -> str:
    """The number of problems of a source file and the place of the first one; `tidemark check` shows all of them."""
    places = [problem["path"] or "the file" for problem in error.problems]
    more = f"{len(places)} problems, the first at {places[0]}" if len(places) > 1 else f"a problem at {places[0]}"
    return f"{error.file} has {more}"


def _short_path(folder: Path) -> str:
    """A folder as people write it: relative to the present one if it is below."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)
