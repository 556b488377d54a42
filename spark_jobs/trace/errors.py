"""What an arrangement refuses before its state machine is asked: updates and times that its plane could not hold."""

from __future__ import annotations

from spark_jobs.kernels.arrangement import ArrangementError


class MalformedUpdates(ArrangementError):
    """Updates are not what the collection holds: a column is missing, of another type, or null. Fact: `column`."""

    code = "malformed_updates"

    def __init__(self, expected: str, found: str, column: str | None = None) -> None:
        super().__init__(
            expected=expected,
            found=found,
            consequence="the whole write was refused",
            next_step="give the collection's own columns, each of its type, and a time and a diff in every row",
            column=column,
        )


class TimeOutOfRange(ArrangementError):
    """A frontier or a time is no whole number that the collection's times can be. Facts: `time`, `greatest`."""

    code = "time_out_of_range"

    def __init__(self, time: object, greatest: int) -> None:
        super().__init__(
            expected=f"a whole number of 0 to {greatest}",
            found=repr(time),
            next_step="count times from an origin before all; the frontier beyond all times is []",
            time=time,
            greatest=greatest,
        )
