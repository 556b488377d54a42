"""The terms on the pages, with the meaning that they have in all of Tidemark."""

WORDS = {
    "source": "One YAML file: where files land, what their columns are, which windows and states are made of them.",
    "drop": "The files of one interval of a source's schedule, a day if it says nothing else.",
    "delta": "One change of one entity: a row of a file.",
    "late": "A row is late for a window that could take no row any more when the row's own drop began. What is done "
    "with it, the source file says: reemit restates the window, discard leaves the row out, next_window counts it in a"
    " later one.",
    "quarantine": "Records that could not be read, or that a check refused, with file, line and reason. The rest of "
    "their drop landed. They can be read again (replay) or closed by a person (dismiss).",
    "duplicate": "A row whose delta_id another row carries; one of them counts.",
    "update": "A delta with the time from which it is visible, and +1 or −1: it came, or was taken back.",
    "visible time": "When a row counts as known: at its event time or its arrival, whichever is later, or at the seal "
    "when it landed, if that is later still.",
    "seal": "No update can be added below it any more, so a read below it always gives the same answer.",
    "published": "Changes with a visible time below it are in the tables that people read. One commit moves it for all "
    "tables of a source.",
    "reached": "The end of the last drop that was run. A delta dated later is in no published table yet.",
    "complete": "Start of the first drop that has not landed.",
    "since": "Reads as of visible times before it are refused: retention let them go.",
    "horizon": "States at event times before it are refused: retention let them go.",
    "final": "A window that no drop still to come can change. Before, it is provisional.",
    "revision": "How often a row had been published before: 0 the first time.",
    "gate": "A suite of expectations between two stages. If one does not hold, nothing after it is published.",
    "check": "An expectation on data, from the engine, from the source file, from dbt or from a team's own suite.",
    "publication": "The step in which all tables of a source change together, and the rows that changed in it.",
    "checkpoint": "An entity's composed state at a delta.",
    "chain": "A checkpoint and the deltas after it, of sources that keep them.",
    "mart": "A table that dbt makes of published tables, for people.",
}
