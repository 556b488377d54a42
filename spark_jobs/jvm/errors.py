"""Errors of Java, of its jars, of Tidemark's Scala code, and of the catalog's database."""

from __future__ import annotations

from spark_jobs.errors import ConfigurationError, TidemarkError


class JavaUnusable(ConfigurationError):
    """Java is missing, too old, or without a module that Spark needs. Facts: `version` (None if missing)."""

    code = "java_unusable"


class JarsMissing(ConfigurationError):
    """Jars are missing from their folder, or are not the pinned ones. Facts: `folder`, `jars`."""

    code = "jars_missing"


class GuardBroken(ConfigurationError):
    """Tidemark's Scala code could not be compiled."""

    code = "guard_broken"


class CatalogUnreachable(TidemarkError):
    """The database of the catalog does not answer, refuses, or has the tables of another Hive. Facts: `place`, or `log`
    of a command or a run that asked it."""

    code = "catalog_unreachable"
