"""Tables of people's actions beside runs: pins of published tables, dismissals of records in quarantine, erasures, and
changes of whole sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import SOURCE

DISMISSALS = Table(
    "bronze",
    "dismissals",
    "Records of quarantine that somebody has closed: those of one file as it was then, by rule. They stay in"
    " bronze.quarantine, as dismissed, and are open again once the file has landed with other bytes.",
    (
        SOURCE,
        Column("file", "STRING", "File, relative to the landing root."),
        Column("checksum", "STRING", "SHA-256 of the file as it landed: another version of it is not dismissed."),
        Column("rule", "STRING", "Id of the rule that rejected them."),
        Column("because", "STRING", "Why, in the words of the person."),
        Column("dismissed_by", "STRING", "Name of the account that did it."),
        Column("dismissed_at", "TIMESTAMP", "When, by the clock of the machine; nothing depends on it."),
    ),
    ("source",),
)

PINS = Table(
    "pins",
    "pins",
    "The pins: copies of published tables as they were known at one time, or at each source's newest.",
    (
        Column("name", "STRING", "Name of the pin; its tables are pins.<name>__<table>."),
        Column("at", "TIMESTAMP", "The visible time of all its tables; null where sources have different ones."),
        Column("sources", "ARRAY<STRING>", "The sources of its tables."),
        Column("tables", "ARRAY<STRING>", "Its tables."),
        Column(
            "kind",
            "STRING",
            "newest: each source as it was published when it was pinned. time: all as known at one time.",
        ),
        Column("times", "MAP<STRING, TIMESTAMP>", "The visible time of the tables of each source."),
    ),
)

ERASURES = Table(
    "bronze",
    "erasures",
    "Entities and values of other columns that were erased, by salted hashes: what lands of them again is counted under"
    " the rule `erased`, and not kept. One row per step; the last one says how far an erasure is.",
    (
        SOURCE,
        Column("erasure", "STRING", "Name of the erasure; files and records have it in place of the erased rows."),
        Column(
            "erased_column", "STRING", "The declared column of the value that was erased; null if it was an entity."
        ),
        Column("entity_hash", "STRING", "BLAKE2b of the entity, or of the column and its value, keyed with the salt."),
        Column("salt", "STRING", "The key, the same for all erasures of the source; hexadecimal."),
        Column(
            "step",
            "STRING",
            "begun: runs of the source wait for its end. counted: the rows to remove are counted. finished.",
        ),
        Column("number", "BIGINT", "Number of the step, from 1."),
        Column(
            "rows",
            "BIGINT",
            "Landed rows, duplicates and records of quarantine that had the value; null before they are counted.",
        ),
        Column("because", "STRING", "Why, in the words of the person."),
        Column("erased_by", "STRING", "Name of the account that did it."),
        Column("recorded_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
)

SOURCE_CHANGES = Table(
    "bronze",
    "source_changes",
    "Changes of whole sources by people: renamed, dropped, reset. One row per step; the last one says how far a change"
    " is. Runs of the source wait for its end.",
    (
        SOURCE,
        Column("change", "STRING", "Name of the change."),
        Column("kind", "STRING", "rename, drop or reset."),
        Column("new_name", "STRING", "The source's new name; null unless it is renamed."),
        Column("step", "STRING", "The step that is done: begun first, finished last."),
        Column("number", "BIGINT", "Number of the step, from 1."),
        Column("archive", "STRING", "Place of the backup before the removal; null if none was asked for."),
        Column("changed_by", "STRING", "Name of the account that did it."),
        Column("recorded_at", "TIMESTAMP", "By the clock of the machine; nothing depends on it."),
    ),
    ("source",),
)


FINISHED = "finished"
"""The last step of every erasure and every change of a source."""


def last_steps(rows: Iterable[Mapping[str, Any]], change: str) -> list[Mapping[str, Any]]:
    """The last step of every change, by its `number`, oldest change first. `rows` have one step each; `change` is the
    column that names changes."""
    last: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["recorded_at"], row["number"])):
        before = last.get(row[change])
        if before is None or row["number"] > before["number"]:
            last[row[change]] = row
    return list(last.values())
