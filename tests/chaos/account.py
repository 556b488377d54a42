"""What a campaign found: each fault with what struck, when, and what came of it, and the sums that are printed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One fault. `kind` and `stage` are what it is counted by, `what` says it in words; `way` is the way on that was
    needed, `problems` what was found wrong afterwards; `since` and `until` are seconds since 1970."""

    number: int
    kind: str
    stage: str
    what: str
    since: float = 0.0
    until: float = 0.0
    ended: str = ""
    way: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)
    rows_off: int = 0

    @property
    def line(self) -> str:
        """It on one line."""
        verdict = "survived" if not self.problems else "NOT SURVIVED"
        way = " > ".join(self.way) or "nothing"
        return (
            f"{self.number:4} {verdict}: {self.kind} in {self.stage}: {self.what}; ended: {self.ended}; way on: {way};"
            f" {self.until - self.since:.0f} s"
        )


@dataclass
class Account:
    """All faults of a campaign, and what its reader saw meanwhile."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    reads: int = 0
    unanswered_reads: int = 0
    excused_reads: int = 0
    refused: list[str] = field(default_factory=list)
    """What a server that was there told the reader in place of rows, though no fault had taken away what it needs."""
    unaudited: list[str] = field(default_factory=list)
    """Reads that no publication of the undisturbed lake says."""
    seconds: float = 0.0

    @property
    def lost(self) -> list[Fault]:
        """Faults that were not survived."""
        return [fault for fault in self.faults if fault.problems]

    @property
    def broken(self) -> list[str]:
        """Every promise that was broken, in words; an empty list is what a campaign is for."""
        return [*(fault.line for fault in self.lost), *self.unaudited, *self.refused]

    def __str__(self) -> str:
        stages = sorted({fault.stage for fault in self.faults})
        kinds = sorted({fault.kind for fault in self.faults})
        counts = Counter((fault.kind, fault.stage) for fault in self.faults)
        lines = ["", f"| fault | {' | '.join(stages)} | in all |", f"| --- |{' ---: |' * (len(stages) + 1)}"]
        for kind in kinds:
            cells = [str(counts[kind, stage] or "") for stage in stages]
            lines.append(f"| {kind} | {' | '.join(cells)} | {sum(counts[kind, stage] for stage in stages)} |")
        survived = len(self.faults) - len(self.lost)
        lines += [
            "",
            f"faults survived: {survived} of {len(self.faults)}",
            f"rows lost or doubled: {sum(fault.rows_off for fault in self.faults)}",
            f"reads of no audited publication: {len(self.unaudited)} of {self.reads}"
            f" ({self.unanswered_reads} more without an answer while the server was down,"
            f" {self.excused_reads} refused while it lacked a folder or room)",
            f"reads that a server refused which was there: {len(self.refused)}",
            f"ways on: {dict(Counter(' > '.join(fault.way) for fault in self.faults))}",
            f"seed {self.seed}, {self.seconds:.0f} s",
        ]
        problems = [problem for fault in self.lost for problem in (fault.line, *fault.problems)]
        return "\n".join([*lines, *problems, *self.refused])
