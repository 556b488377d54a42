"""S3 as Spark, `deltalake` and Arrow reach it: one set of environment variables, `AWS_…`, for all three.

Each of the three reads the keys from the environment by itself, in the process that uses it. This module handles their
differences: Spark has its own names for the endpoint and the region, and `deltalake` uses HTTP only if allowed to.

All three repeat a request that the store refuses for now (503, "slow down") or does not answer, with growing random
pauses, for about `patience_s()`. By themselves they give up after 1 to 3 seconds, or go on for hours.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import accumulate, count
from pathlib import Path
from urllib.parse import urlsplit

from spark_jobs.settings.file import STORE_PATIENCE_S, early_setting

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
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The environment variables that have secrets."""
SPARKS_SETTINGS = tuple(_PREFIX + name for name in _SPARKS)
"""The full names of the Spark settings that `options_of` reads."""


def is_s3(place: str) -> bool:
    """True if a path or URI is in S3."""
    return urlsplit(place).scheme in _SCHEMES


def with_scheme(place: str, scheme: str) -> str:
    """A place in S3 with another scheme: Spark needs `s3a`; `deltalake` and Arrow need `s3`. Other places as given."""
    return f"{scheme}:{place.partition(':')[2]}" if is_s3(place) else place


def export_keys(folder: Path) -> None:
    """Set the environment variables of keys that a folder of secrets has as files, such as `aws_access_key_id`.

    Variables that are set stay. Files of that name need not exist."""
    for name in KEYS:
        file = folder / name.lower()
        if name not in os.environ and file.is_file():
            os.environ[name] = file.read_text().strip()


def region() -> str | None:
    """The region of S3 from `AWS_REGION`, else from `AWS_DEFAULT_REGION`; None if neither is set."""
    return os.environ.get(_REGION) or os.environ.get("AWS_DEFAULT_REGION")


def endpoint() -> str | None:
    """The URL of the S3 server from `AWS_ENDPOINT_URL`; None for Amazon's own."""
    return os.environ.get(_ENDPOINT) or None


def patience_s() -> float:
    """The seconds for which a refused request is repeated: the setting `store_patience_s`, read from the environment or
    the settings file, since the processes of tasks have no `Settings`."""
    return float(early_setting("store_patience_s") or STORE_PATIENCE_S)


def arrow_attempts(within_s: float) -> int:
    """The number of attempts at a request by which Arrow's S3 has waited for about `within_s` seconds."""
    # the pauses of Amazon's library double up to 20 s, and are half as long on average
    pauses = accumulate(min(0.25 * 2**place, 10.0) for place in count())
    return next(attempts for attempts, waited in enumerate(pauses, 1) if waited >= within_s)


def spark_settings(scratch: str | None) -> dict[str, str]:
    """The settings of S3 that Spark needs. They have no keys, which Spark reads from the environment.

    Args:
        scratch: the folder that uploads are buffered in; None: Hadoop's own, for machines that have no such folder.
    """
    settings = {
        **({} if scratch is None else {"buffer.dir": scratch}),
        # the stream that prefetches needs one more library, and does not know the parts that pyarrow has already read
        "input.stream.type": "classic",
        # the first pause doubles with each try
        "retry.limit": _doublings(0.5),
        "retry.interval": "500ms",
        "retry.throttle.limit": _doublings(0.1),
        "retry.throttle.interval": "100ms",
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
    return options | _plain_http(options.get(_ENDPOINT)) | _retries(patience_s())


def environment_options(place: str, within_s: float | None = None) -> dict[str, str]:
    """The options that `deltalake` needs, beside the environment, to open the table at a path or URI.

    `within_s`: the seconds for which a refused request is repeated; None: `patience_s()`.
    """
    return _plain_http(endpoint()) | _retries(within_s or patience_s()) if is_s3(place) else {}


def _doublings(first_s: float) -> str:
    """The number of pauses that take as long as the patience, if the first takes `first_s` and each twice the last."""
    return str(math.ceil(math.log2(patience_s() / first_s + 1)))


def _retries(within_s: float) -> dict[str, str]:
    """The options of `deltalake` that end its retries by their time, not by their number."""
    return {"max_retries": "10000", "retry_timeout": f"{within_s:g}s", "backoff_config.max_backoff": "5s"}


def _plain_http(server: str | None) -> dict[str, str]:
    return {"AWS_ALLOW_HTTP": "true"} if (server or "").startswith("http://") else {}
