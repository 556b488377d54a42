"""Fences: they keep an attempt that was given up from changing the rows that its successor wrote.

Every attempt of a stage takes a token, greater than all before it for its source, and every commit carries it as
Delta's `(txnAppId, txnVersion)`. So once a newer attempt has committed to a table, a commit of an older one is skipped
by Delta, and two at the same instant conflict. Rows that an older attempt committed *before* that are recognized by
their token, which no publication names (see `trace.published`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.errors import TidemarkError


class Superseded(TidemarkError):
    """Another run has taken the source over, between two stages of this one or during one. Facts: `source`, and
    `run_id` and `by`, or `token`."""

    code = "superseded"


@dataclass(frozen=True, slots=True)
class Fence:
    """One attempt's right to write a source: Delta's writer options are made of it.

    Delta accepts one commit per table and token.
    """

    source: str
    token: int

    @property
    def app_id(self) -> str:
        """The owner of the tokens, as Delta's logs name it."""
        return f"tidemark/{self.source}"

    def writer_options(self) -> dict[str, str]:
        """Options of a Delta write that make the commit skip itself once a newer token has committed."""
        return {"txnAppId": self.app_id, "txnVersion": str(self.token)}
