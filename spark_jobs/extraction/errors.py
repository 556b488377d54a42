"""The errors of reading tables and topics, and of the way there."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError


class ConnectionUnknown(TidemarkError):
    """No connection has the name, or its description can't be used. Fact: `connection`."""

    code = "connection_unknown"


class OriginUnreachable(TidemarkError):
    """A database or broker does not answer, or refuses the user. Facts: `connection`, `origin`."""

    code = "origin_unreachable"


class OriginUnsuitable(TidemarkError):
    """The table, query or topic is missing, or not as the source file describes it. Facts: `connection`, `origin`."""

    code = "origin_unsuitable"


class OffsetsLost(TidemarkError):
    """Kafka has removed messages that no drop had read. Facts: `topic`, `lost`: partition -> [first, last] offset."""

    code = "offsets_lost"


class ExtractLost(TidemarkError):
    """A file that was extracted is gone, and had not landed. Facts: `source`, `path`."""

    code = "extract_lost"
