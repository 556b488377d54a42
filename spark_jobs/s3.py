"""S3 as Spark, `deltalake` and Arrow reach it: one set of environment variables, `AWS_…`, for all three.

Each reads the keys from the environment by itself, in the process that asks. What they do not agree on is said here:
how Spark names the endpoint and the region, and that `deltalake` has to be allowed to speak HTTP.
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
"""Spark's settings of S3 below `spark.hadoop.fs.s3a`, and what they are called in the environment."""
SPARKS_SETTINGS = tuple(_PREFIX + name for name in _SPARKS)
"""Those from which `options_of` works out what `deltalake` needs."""


def is_s3(place: str) -> bool:
    """Whether a path or URI is in S3."""
    return urlsplit(place).scheme in _SCHEMES


def with_scheme(place: str, scheme: str) -> str:
    """A place in S3 as `scheme` names it: Spark knows `s3a`, `deltalake` and Arrow `s3`; any other place as it is."""
    return f"{scheme}:{place.partition(':')[2]}" if is_s3(place) else place


def region() -> str | None:
    """The region that the environment names."""
    return os.environ.get(_REGION) or os.environ.get("AWS_DEFAULT_REGION")


def endpoint() -> str | None:
    """The server that the environment names, as a URL; None: Amazon's own."""
    return os.environ.get(_ENDPOINT) or None


def spark_settings(scratch: str) -> dict[str, str]:
    """What Spark needs beside the environment, where the keys are left.

    Args:
        scratch: folder in which uploads wait.
    """
    settings = {
        "buffer.dir": scratch,
        # the stream that reads ahead by itself takes a library more, and knows nothing of what pyarrow has read
        "input.stream.type": "classic",
    }
    if of_region := region():
        settings["endpoint.region"] = of_region
    if server := endpoint():
        # a server of one's own has no host name for each bucket
        settings |= {"endpoint": server, "path.style.access": "true"}
    return {_PREFIX + name: value for name, value in settings.items()}


def options_of(sparks: Mapping[str, str]) -> dict[str, str]:
    """What `deltalake` needs where Spark has these settings; what is not among them it reads from the environment."""
    options = {name: value for theirs, name in _SPARKS.items() if (value := sparks.get(_PREFIX + theirs))}
    if _ENDPOINT in options and "://" not in options[_ENDPOINT]:
        options[_ENDPOINT] = f"https://{options[_ENDPOINT]}"
    return options | _plain_http(options.get(_ENDPOINT))


def environment_options(place: str) -> dict[str, str]:
    """What `deltalake` needs beside the environment to open what is at a path or URI."""
    return _plain_http(endpoint()) if is_s3(place) else {}


def _plain_http(server: str | None) -> dict[str, str]:
    return {"AWS_ALLOW_HTTP": "true"} if (server or "").startswith("http://") else {}
