"""The faults: what strikes a command while it works, and what is lost between commands.

Each takes the site and a random generator, does its harm, and says in a few words what it did.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from random import Random

import psutil

from tests.chaos.site import Command, Site, remove

Strike = Callable[[Site, Random, Command], str]

NOT_LOCAL = {"lake", "landing"}
"""Folders of a home that are no caches: what is in them is in a backup, or comes from outside."""
BESIDE = {
    "the same run": ("run", "{source}", "--from", "{day}", "--to", "{day}"),
    "a run of the other source": ("run", "{other}", "--from", "{day}", "--to", "{day}"),
    "a plan": ("plan", "{source}", "--from", "{day}", "--to", "{day}"),
    "a merge": ("merge", "{source}"),
    "maintenance": ("maintain", "{source}"),
    "a backup": ("backup", "{backup}"),
    "an audit": ("audit", "{source}"),
    "a repair": ("doctor", "--repair"),
    "a retraction": ("retract", "{source}", "--drop", "{day}"),
}
"""Commands that people start while another one is on its way."""


def kill_command(site: Site, chance: Random, command: Command) -> str:
    """As `kill -9`, or a machine's end, ends what a person has started."""
    command.signal(signal.SIGKILL)
    return "kill -9 of the command"


def interrupt(site: Site, chance: Random, command: Command) -> str:
    """Ctrl-C."""
    command.signal(signal.SIGINT)
    return "Ctrl-C"


def kill_part(part: str, number: signal.Signals = signal.SIGKILL) -> Callable[[Site, Random, Command | None], str]:
    """The end of one of the processes that `tidemark up` started: at once, or in order, as its supervisor ends it."""

    def strike(site: Site, chance: Random, command: Command | None) -> str:
        pid = site.pid(part)
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).send_signal(number)
        return f"kill -{number} of {part}"

    return strike


def kill_workers(site: Site, chance: Random, command: Command) -> str:
    """The end of Spark's Python workers, as the kernel ends them where memory is short."""
    workers = site.workers()
    some = chance.sample(workers, chance.randint(1, len(workers))) if workers else []
    for worker in some:
        with contextlib.suppress(psutil.Error):
            worker.kill()
    return f"kill -9 of {len(some)} Python workers"


def cut(site: Site, chance: Random, command: Command) -> str:
    """All connections to the lake server reset, once or for some seconds."""
    refuse = chance.random() < 0.5
    site.cut(refuse=refuse)
    return "connections reset" + (" and refused for 3 s" if refuse else "")


def fill_disk(site: Site, chance: Random, command: Command) -> str:
    """No room on the disk of home and lake until the command has ended."""
    left = chance.choice([0, 4096, 65536, 1 << 20])
    site.disk.fill(left)
    return f"a disk with {left} bytes left"


def lose(site: Site, chance: Random, command: Command | None = None) -> str:
    """A folder of the home is gone."""
    there = sorted(path.name for path in site.settings.home.iterdir() if path.is_dir())
    name = chance.choice([name for name in there if name not in NOT_LOCAL])
    remove(site.settings.home / name)
    return f"rm -r {name}"


STRIKES: Mapping[str, tuple[int, Strike]] = {
    "kill of the command": (6, kill_command),
    "interrupt": (3, interrupt),
    "kill of the lake server": (2, kill_part("lake")),
    "end of the lake server": (2, kill_part("lake", signal.SIGTERM)),
    "kill of the command server": (2, kill_part("commands")),
    "kill of the supervisor": (1, kill_part("supervisor")),
    "kill of workers": (3, kill_workers),
    "cut connections": (4, cut),
    "full disk": (4, fill_disk),
    "loss of a folder": (4, lose),
}
"""What strikes a command, by kind, and how often beside the others."""
POINTS: Mapping[str, int] = {"kill_before": 4, "kill_after": 4, "clock": 3, "file_size": 2}
"""What strikes at a commit, and how often beside the others."""
POINT_NAMES = {
    "kill_before": "kill before a commit",
    "kill_after": "kill after a commit",
    "clock": "clock jump",
    "file_size": "failing file system",
}


IN_RUN = {**{kind: weight for kind, (weight, _) in STRIKES.items()}, "commit": 9, "two at once": 6}
"""What strikes a run, and how often beside the others."""
BETWEEN = {
    "loss of a folder": 3,
    "kill of the lake server": 1,
    "maintain": 1,
    "backup": 1,
    "retract": 2,
    "doctor --repair": 1,
}
"""What is lost between runs, or the command that is killed there, and how often beside the others."""


def point(chance: Random) -> dict[str, object]:
    """A commit, and what happens at it."""
    does = chance.choices(list(POINTS), list(POINTS.values()))[0]
    seconds = chance.choice([-400, -1, 1, 400]) * 86_400 + chance.randint(-3600, 3600)
    sizes = chance.choice([0, 512, 16_384])
    return {"commit": chance.randint(1, 12), "does": does, "seconds": seconds, "bytes": sizes}


def pause(chance: Random, longest_s: float) -> None:
    """Some moment."""
    time.sleep(chance.uniform(0, longest_s))
