"""The state of the supervisor, which it writes for `status`, `up` and `down` into a small JSON file under home."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import psutil

from spark_jobs.config import Settings

Condition = Literal["running", "restarting", "failed", "finished", "lingering"]
"""The condition of a part. `failed`: the part ended too often and was given up; `finished`: the part is a single step,
such as the migration, and has ended; `lingering`: the part serves no more, but its process still works."""


@dataclass(frozen=True, slots=True)
class PartState:
    """The state of one part.

    `started` is in seconds since the epoch, for people; `started_monotonic` is in seconds of the monotonic clock.
    `reason` is given if the supervisor ended the part's last process, since it ran but did not work."""

    name: str
    condition: Condition
    pid: int | None
    started: float
    restarts: int
    log: str
    last_exit: int | None
    reason: str = ""
    started_monotonic: float = 0.0


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """A supervisor and its parts.

    Attributes:
        created: the process's creation time, which distinguishes it from a later process with the same id.
        code: version of the code (`code_version`) when `tidemark up` last started or checked the lake server.
        airflow: True if it runs Airflow, according to the last wish that it has read.
        wish: the name of that wish.
        setup: the settings as environment variables; a change of them needs a restart of all parts.
    """

    pid: int
    created: float
    code: str
    airflow: bool
    setup: dict[str, str]
    parts: tuple[PartState, ...]
    wish: str = ""

    def is_alive(self) -> bool:
        """True if this supervisor still runs, and not another process with the same id."""
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    @property
    def lingers(self) -> bool:
        """True if everything was ended, and the supervisor only waits for a part that serves no more."""
        return any(part.condition == "lingering" for part in self.parts)

    def part(self, name: str) -> PartState | None:
        """The part with this name, or None."""
        return next((part for part in self.parts if part.name == name), None)


def state_file(settings: Settings) -> Path:
    """The file of the supervisor's state."""
    return settings.server_dir / "supervisor.json"


def wish_file(settings: Settings) -> Path:
    """The file in which `tidemark up` tells the supervisor what to run, see `write_wish`."""
    return settings.server_dir / "wish.json"


def write_wish(settings: Settings, *, airflow: bool, code: str) -> str:
    """Write the wish for the supervisor: with or without Airflow, and the version of the code.

    Returns the new name of the wish. The supervisor's state has that name once the supervisor has read the wish."""
    name = uuid4().hex
    write_json(wish_file(settings), {"airflow": airflow, "code": code, "wish": name})
    return name


def read_state(settings: Settings) -> SupervisorState | None:
    """The state that was written last, or None. Its supervisor may have ended since."""
    try:
        content = json.loads(state_file(settings).read_text())
    except FileNotFoundError:
        return None
    field_names = {field.name for field in fields(SupervisorState)}
    parts = tuple(PartState(**part) for part in content.pop("parts"))
    # another version may have written it: missing fields become None, and `down` must work all the same
    missing_fields: dict[str, Any] = dict.fromkeys(field_names - content.keys() - {"parts"})
    return SupervisorState(**{**missing_fields, **{k: v for k, v in content.items() if k in field_names}}, parts=parts)


def running_supervisor(settings: Settings) -> SupervisorState | None:
    """The state of the supervisor of this home, or None if it does not run, or has ended all services."""
    state = read_state(settings)
    return state if state and state.is_alive() and not state.lingers else None


def lingering_supervisor(settings: Settings) -> SupervisorState | None:
    """The state of a supervisor that has ended all services, and waits for a part that still works; else None."""
    state = read_state(settings)
    return state if state and state.is_alive() and state.lingers else None


def write_state(settings: Settings, state: SupervisorState) -> None:
    """Replace the supervisor's state; readers see the old one or the new one."""
    write_json(state_file(settings), asdict(state))


def write_json(path: Path, content: object) -> None:
    """Replace a file by one of mode 0600 with this content as JSON; readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        written = Path(file.name)
    try:
        written.write_text(json.dumps(content, indent=1))
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
