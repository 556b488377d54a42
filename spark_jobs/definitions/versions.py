"""Definition versions: the parts of a source file that changed since the last publication, and the check if a run may
apply them.

The published rows follow one version of the definition. After a change of a window, late policy or state, and once
somebody has accepted it, the affected rows are recomputed and published as one correction. After a change of the way
files are read (`parse`, `delta`), every landed file that is still there is read again, and the difference is landed.
Other drops would change the row ids of all rows: that is another source.
"""

from __future__ import annotations

import json

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication

LANDED_PARTS = ("parse", "delta")
"""The parts of a definition that landed rows depend on."""

FIXED_PART = "drops"
"""The part of a definition whose change no run can apply."""

_READING, _READ_AS_NOW = "reading", "1"
"""The name and present value of a mark that a publication has beside the parts. An earlier publication lacks it, and
may leave out rows that this code counts and lists (`restatement.misread`)."""


class DefinitionChanged(TidemarkError):
    """The source file differs from the definition that the published rows follow. Facts: `source`, `parts`."""

    code = "definition_changed"


def version(source: Source) -> str:
    """The definition's version as JSON, in the form that a publication stores."""
    return json.dumps({**source.definition_parts(), _READING: _READ_AS_NOW}, sort_keys=True, separators=(",", ":"))


def is_read_as_now(published: Publication) -> bool:
    """True if the publication's rows were read as this code reads them."""
    return bool(published.definition) and json.loads(published.definition).get(_READING) == _READ_AS_NOW


def changed_parts(source: Source, published: Publication) -> list[str]:
    """The parts whose definition differs from the published one, new and removed ones included. None of them before the
    first publication."""
    if not published.definition:
        return []
    before, now = json.loads(published.definition), source.definition_parts()
    return sorted(part for part in {*before, *now} - {_READING} if before.get(part) != now.get(part))


def check_version(
    source: Source, published: Publication, *, accepted: bool, consequence: str = "nothing was run"
) -> list[str]:
    """The changed parts, if a run may apply them; `consequence`: the consequence that a refusal states.

    Raises:
        DefinitionChanged: the drops have changed, or other parts have and nobody has accepted it.
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
        next_step = (
            "run with --accept-definition to recompute the affected results as one correction, or undo the change"
        )
    raise DefinitionChanged(
        expected=f"the definition of {source.name} that its published rows follow",
        found=f"another {', '.join(parts)}",
        consequence=consequence,
        next_step=next_step,
        source=source.name,
        parts=parts,
    )
