"""Definition versions: what of a source file has changed since the last publication, and whether a run may go on.

The published rows follow one version of the definition. Another window, late policy or state recomputes what it
affects and publishes it as one correction, once somebody has accepted that. Another way of reading files (`parse`,
`delta`) reads every landed file that is still there again, and lands the difference. Other drops make other row ids of
all rows: that is another source.
"""

from __future__ import annotations

import json

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.publication import Publication

LANDED_PARTS = ("parse", "delta")
"""Parts that landed rows are made of."""

FIXED_PART = "drops"
"""The part that no run can apply."""

_READING, _READ_AS_NOW = "reading", "1"
"""What a publication notes beside the parts: which of its rows this code counts and lists (`restatement.misread`)."""


class DefinitionChanged(TidemarkError):
    """The source file says something else than what the published rows follow. Facts: `source`, `parts`."""

    code = "definition_changed"


def version(source: Source) -> str:
    """The definition's version, as a publication keeps it."""
    return json.dumps({**source.definition_parts(), _READING: _READ_AS_NOW}, sort_keys=True, separators=(",", ":"))


def is_read_as_now(published: Publication) -> bool:
    """Whether the publication's rows were read as this code reads them."""
    return bool(published.definition) and json.loads(published.definition).get(_READING) == _READ_AS_NOW


def changed_parts(source: Source, published: Publication) -> list[str]:
    """Parts whose definition differs from the published one, new and removed ones too; none before a publication."""
    if not published.definition:
        return []
    before, now = json.loads(published.definition), source.definition_parts()
    return sorted(part for part in {*before, *now} - {_READING} if before.get(part) != now.get(part))


def check_version(
    source: Source, published: Publication, *, accepted: bool, consequence: str = "nothing was run"
) -> list[str]:
    """The changed parts, if a run may apply them; `consequence`: what the refusal says of it.

    Raises:
        DefinitionChanged: the drops have changed, or nobody has accepted what else has.
    """
    parts = changed_parts(source, published)
    if not parts or (accepted and FIXED_PART not in parts):
        return parts
    if FIXED_PART in parts:
        next_step = (
            f"undo the change; or `tidemark source reset {source.name}`, and land its files again by the drops that "
            "they are in then; or give the source another name"
        )
    else:
        next_step = "run with --accept-definition to recompute what it affects as one correction, or undo the change"
    raise DefinitionChanged(
        expected=f"the definition of {source.name} that its published rows follow",
        found=f"another {', '.join(parts)}",
        consequence=consequence,
        next_step=next_step,
        source=source.name,
        parts=parts,
    )
