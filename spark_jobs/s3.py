"""S3 as Spark, `deltalake` and Arrow reach it: one set of environment variables, `AWS_…`, for all three.

Each of the three reads the keys from the environment by itself, in the process that uses it. This module handles their
differences: Spark has its own names for the endpoint and the region, and `deltalake` uses HTTP only if allowed to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

_SCHEMES = ("s3", "s3a", "s3n")
_PREFIX = "spark.hadoop.fs.s3a."
_ENDPOINT, _REGION = "AWS_ENDPOINT_URL", "AWS_REGION"
_SPARKS = {
    "endpoint": _ENDPOINT,
    "endpoint.region": _REGION,
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
}
"""Spark's settings of S3 below `spark.hadoop.fs.s3a` -> the environment variables with the same content."""
SPARKS_SETTINGS = tuple(_PREFIX + name for name in _SPARKS)
"""The full names of the Spark settings that `options_of` reads."""


def is_s3(place: str) -> bool:
    """True if a path or URI is in S3."""
    return urlsplit(place).scheme in _SCHEMES


def with_scheme(place: str, scheme: str) -> str:
    """A place in S3 with another scheme: Spark needs `s3a`; `deltalake` and Arrow need `s3`. Other places as given."""
    return f"{scheme}:{place.partition(':')[2]}" if is_s3(place) else place


def region() -> str | None:
    """The region of S3 from `AWS_REGION`, else from `AWS_DEFAULT_REGION`; None if neither is set."""
    return os.environ.get(_REGION) or os.environ.get("AWS_DEFAULT_REGION")


def endpoint() -> str | None:
    """The URL of the S3 server from `AWS_ENDPOINT_URL`; None for Amazon's own."""
    return os.environ.get(_ENDPOINT) or None


def spark_settings(scratch: str) -> dict[str, str]:
    """The settings of S3 that Spark needs. They have no keys, which Spark reads from the environment.

    Args:
        scratch: the folder that uploads are buffered in.
    """
    settings = {
        "buffer.dir": scratch,
        # the stream that prefetches needs one more library, and does not know the parts that pyarrow has already read
        "input.stream.type": "classic",
    }
    if of_region := region():
        settings["endpoint.region"] = of_region
    if server := endpoint():
        # a self-hosted server has no host name per bucket
        settings |= {"endpoint": server, "path.style.access": "true"}
    return {_PREFIX + name: value for name, value in settings.items()}


def options_of(sparks: Mapping[str, str]) -> dict[str, str]:
    """The options of `deltalake` that equal these settings of Spark. For others, `deltalake` reads the environment."""
    options = {name: value for theirs, name in _SPARKS.items() if (value := sparks.get(_PREFIX + theirs))}
    if _ENDPOINT in options and "://" not in options[_ENDPOINT]:
        options[_ENDPOINT] = f"https://{options[_ENDPOINT]}"
    return options | _plain_http(options.get(_ENDPOINT))


def environment_options(place: str) -> dict[str, str]:
    """The options that `deltalake` needs, beside the environment, to open the table at a path or URI."""
    return _plain_http(endpoint()) if is_s3(place) else {}


def _plain_http(server: str | None) -> dict[str, str]:
    return {"AWS_ALLOW_HTTP": "true"} if (server or "").startswith("http://") else {}
