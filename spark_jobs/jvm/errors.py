"""Errors of Java, of its jars, and of Tidemark's Scala code."""

from __future__ import annotations

from spark_jobs.errors import ConfigurationError


class JavaUnusable(ConfigurationError):
    """Java is missing, too old, or without a module that Spark needs. Facts: `version` (None if missing)."""

    code = "java_unusable"


class JarsMissing(ConfigurationError):
    """Jars are missing from their folder, or are not the pinned ones. Facts: `folder`, `jars`."""

    code = "jars_missing"


class GuardBroken(ConfigurationError):
    """Tidemark's Scala code could not be compiled."""

    code = "guard_broken"
