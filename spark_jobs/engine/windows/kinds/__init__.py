"""The kinds of windows. One class describes a kind: the windows that rows make, and how these windows lie in time.

    kind                 windows over a row at t end between        a window [s, e] changes with rows at
    Sliding              t  and  t + size                           s - 1 .. e    (a row at s - 1 opens it)
    Sessions             t + gap  (by definition)                   s - gap .. e + gap
    Hopping              the first and the last grid window         s .. e - 1
    Calendar             the period over t                          s .. e - 1
    Adaptive             the cell over t                            the cell over s
    EmissionsKind        as for the windows that emit them

Ends are *last instants*: `end` of closed windows, `end - 1` of half-open ones. A new kind is a module here, and its
keys in a source file (`sources.windows`).
"""

from spark_jobs.engine.windows.kinds.adaptive import AdaptiveKind, Deltas
from spark_jobs.engine.windows.kinds.calendars import Calendar
from spark_jobs.engine.windows.kinds.cuts import Cuts, Trigger
from spark_jobs.engine.windows.kinds.emissions import EmissionsKind
from spark_jobs.engine.windows.kinds.firings import FiringRules
from spark_jobs.engine.windows.kinds.hopping import Hopping
from spark_jobs.engine.windows.kinds.kind import Grain, Settled, WindowKind
from spark_jobs.engine.windows.kinds.own_trigger import EarlyTrigger, OwnTrigger, TriggerRows
from spark_jobs.engine.windows.kinds.sessions import Sessions
from spark_jobs.engine.windows.kinds.sliding import Sliding
from spark_jobs.engine.windows.kinds.ticks import SqlTicks

__all__ = [
    "AdaptiveKind",
    "Calendar",
    "Cuts",
    "Deltas",
    "EarlyTrigger",
    "EmissionsKind",
    "FiringRules",
    "Grain",
    "Hopping",
    "OwnTrigger",
    "Sessions",
    "Settled",
    "Sliding",
    "SqlTicks",
    "Trigger",
    "TriggerRows",
    "WindowKind",
]
