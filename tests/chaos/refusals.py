"""What a reader gets in place of rows: nobody answers, or the server says why not.

While a server is down nobody answers, and that is no news. A server that answers owes a reader the rows; what else it
says breaks a promise, unless a fault that struck then takes away what it answers from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.chaos.account import Fault

_NO_ANSWER = re.compile(
    r"^Could not connect to any of "
    r"|^TSocket read 0 bytes$"
    r"|^Bad status: \d+ \(b''\)"
    r"|^unexpected exception$"
    r"|^(read|write|recv) timeout$|^timed out$"
    r"|Connection (refused|reset by peer|aborted)|Broken pipe|^EOF"
)
"""What the client says of a server that is not there, or does not finish what it says."""
_ENDED = re.compile(
    r"Invalid SessionHandle|Invalid OperationHandle"
    r"|SparkContext (was|has been) shut ?down|stopped SparkContext|SparkContext has been shutdown"
    r"|(Service|Pool|Manager|Executor\S*) .{0,40}(shut ?down|stopped|Shutting down)|Shutdown in progress"
    r"|Filesystem closed|RpcEnv already stopped|Could not find (HeartbeatReceiver|BlockManagerMaster|MapOutputTracker)"
    r"|java\.lang\.InterruptedException|ClosedByInterruptException"
)
"""What a server still says that is about to end, or that a client's session has not outlived."""
_TAKES_AWAY = {"loss of a folder": "", "full disk": "NOT_FOUND|not_allowed"}
"""Kind of fault -> pattern of what a server must not say even then. A lost folder may be the catalog's, which comes
back with the way on; a full disk keeps queries from their scratch space, and no name from being known."""


@dataclass(frozen=True)
class Refusal:
    """A read that gave no rows: what was said, and from when to when (seconds since 1970)."""

    message: str
    begun: float
    ended: float

    @classmethod
    def of(cls, line: dict[str, Any]) -> Refusal:
        """One of those that the reader has noted."""
        return cls(line["error"], line["begun"], line["ended"])

    @property
    def no_answer(self) -> bool:
        """Whether the server was not there, or ended."""
        return bool(_NO_ANSWER.search(self.message) or _ENDED.search(self.message))

    def excused_by(self, faults: Iterable[Fault]) -> bool:
        """Whether a fault, or the way on after it, was at work that takes away what the server answers from."""
        return any(self._excused_by(fault) for fault in faults if fault.kind in _TAKES_AWAY)

    def _excused_by(self, fault: Fault) -> bool:
        never = _TAKES_AWAY[fault.kind]
        meanwhile = self.begun <= fault.until and fault.since <= self.ended
        return meanwhile and not (never and re.search(never, self.message))
