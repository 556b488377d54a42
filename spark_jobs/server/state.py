"""What the supervisor writes down for `status`, `up` and `down`: one small JSON file under home."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import psutil

from spark_jobs.config import Settings

Condition = Literal["running", "restarting", "failed", "finished"]
"""`failed`: it ended too often and is given up; `finished`: a step that ran to its end (the migration)."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as its supervisor sees it. `started` is in seconds since the epoch, for people; `started_monotonic` in
    those of the monotonic clock. `reason`: why its supervisor ended its last process, which ran and did not work."""

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
        created: the process's creation time, which tells it from a later process with the same id.
        code: version of the code (`code_version`) when `tidemark up` last started or checked the lake server.
        airflow: whether it runs Airflow, as the last wish that it has read says.
        wish: the name of that wish.
        setup: the settings as a mapping; a change of them needs a restart of everything.
    """

    pid: int
    created: float
    code: str
    airflow: bool
    setup: dict[str, str]
    parts: tuple[PartState, ...]
    wish: str = ""

    def is_alive(self) -> bool:
        """Whether this very supervisor still runs."""
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def part(self, name: str) -> PartState | None:
        """The part of that name, or None."""
        return next((part for part in self.parts if part.name == name), None)


def state_file(settings: Settings) -> Path:
    """Where the supervisor's state is."""
    return settings.server_dir / "supervisor.json"


def wish_file(settings: Settings) -> Path:
    """Where `tidemark up` writes what the supervisor should run, see `write_wish`."""
    return settings.server_dir / "wish.json"


def write_wish(settings: Settings, *, airflow: bool, code: str) -> str:
    """Write what the supervisor should run: Airflow or not, and which version of the code; the wish's name, by which
    its state tells that it has read it."""
    name = uuid4().hex
    write_json(wish_file(settings), {"airflow": airflow, "code": code, "wish": name})
    return name


def read_state(settings: Settings) -> SupervisorState | None:
    """The state written last, or None; its supervisor may have ended since."""
    try:
        content = json.loads(state_file(settings).read_text())
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(SupervisorState)}
    parts = tuple(PartState(**part) for part in content.pop("parts"))
    # written by another version of this file: what it does not say is unknown, and `down` must work all the same
    unsaid: dict[str, Any] = dict.fromkeys(known - content.keys() - {"parts"})
    return SupervisorState(**{**unsaid, **{k: v for k, v in content.items() if k in known}}, parts=parts)


def write_state(settings: Settings, state: SupervisorState) -> None:
    """Replace the state, at once for readers."""
    write_json(state_file(settings), asdict(state))


def write_json(path: Path, content: object) -> None:
    """Replace a file (mode 0600) by JSON, at once for readers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        written = Path(file.name)
    try:
        written.write_text(json.dumps(content, indent=1))
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
