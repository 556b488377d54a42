"""The kinds of windows. One class describes a kind: the windows that rows make, and how these windows lie in time.

    kind                 windows over a row at t end between        a window [s, e] changes with rows at
    Sliding              t  and  t + size                           s - 1 .. e    (a row at s - 1 opens it)
    Sessions             t + gap  (by definition)                   s - gap .. e + gap
    Hopping              the first and the last grid window         s .. e - 1
    Calendar             the period over t                          s .. e - 1
    Adaptive             the cell over t                            the cell over s

Ends are *last instants*: `end` of closed windows, `end - 1` of half-open ones. A new kind is a module here, and its
keys in a source file (`sources.windows`).
"""

from .adaptive import Adaptive, Deltas, stats_type
from .calendars import Calendar
from .cuts import Cuts, Trigger
from .hopping import Hopping
from .kind import Grain, Kind, Settled
from .sessions import Sessions
from .sliding import Sliding
from .ticks import SqlTicks

__all__ = [
    "Adaptive",
    "Calendar",
    "Cuts",
    "Deltas",
    "Grain",
    "Hopping",
    "Kind",
    "Sessions",
    "Settled",
    "Sliding",
    "SqlTicks",
    "Trigger",
    "stats_type",
]
