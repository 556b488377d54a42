"""Connections to databases and Kafka: addresses, users and passwords by name, in none of the source files.

`TIDEMARK_CONNECTION_<NAME>` has one as a JSON object; else the file of connections, which only its owner may read:

    shop: {url: "jdbc:postgresql://db.example.org/shop", user: reader, password: …}
    events: {servers: "kafka.example.org:9092", kafka.security.protocol: SSL}

A connection's other keys are passed to Spark's reader as its options.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.config import ENVIRONMENT_PREFIX, Settings
from spark_jobs.extraction.errors import ConnectionUnknown
from spark_jobs.sources.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECRET = ("password", "secret", "jaas", "token", "passphrase", "sslkey", "credential")
_SHORTEST_SECRET = 3
"""The least length of a secret that is replaced in texts: a shorter one would be found within other words."""


@dataclass(frozen=True, repr=False)
class Connection:
    """One connection: its name, and the options of Spark's reader."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Connection({self.name})"

    def without_secrets(self, text: str) -> str:
        """`text` with every secret of the connection replaced by `***`."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> Iterator[str]:
        for key, value in self.options.items():
            if any(word in key.lower() for word in _SECRET) and len(value) >= _SHORTEST_SECRET:
                yield value
                # each quoted value of a JAAS configuration may be a secret
                yield from (part for part in value.split('"')[1::2] if len(part) >= _SHORTEST_SECRET)
        query = self.options.get("url", "").partition("?")[2]
        for pair in query.split("&"):
            key, _, value = pair.partition("=")
            if any(word in key.lower() for word in _SECRET) and value:
                yield value

    @contextmanager
    def scrubbing(self, refusal: Callable[[str], Exception]) -> Iterator[None]:
        """A context that replaces an error of Spark or Py4J by the one that `refusal` makes of its text. The text has
        no secrets. The new error has no cause, since the cause's text would have them."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError) as error:
            raise refusal(self.without_secrets(str(error))) from None


def connection(settings: Settings, name: str, required: str) -> Connection:
    """The connection of this name, which must have the key `required`.

    Raises:
        ConnectionUnknown: there is no such connection, or it can't be used.
    """
    variable = f"{ENVIRONMENT_PREFIX}CONNECTION_{name.upper()}"
    if variable in os.environ:
        place, given = variable, _of_variable(variable, name)
    else:
        place, given = str(settings.connections), _of_file(settings.connections, name, variable)
    if not isinstance(given, dict) or not all(isinstance(v, str | int | bool) for v in given.values()):
        # the value may be a secret: it is not shown
        raise _unknown(name, f"a mapping of names to texts for {name} in {place}", "something else")
    texts = {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in given.items()}
    if not texts.get(required):
        raise _unknown(name, f"`{required}` for the connection {name} in {place}", f"{', '.join(texts) or 'no keys'}")
    return Connection(name, texts)


def _of_variable(variable: str, name: str) -> Any:
    try:
        return json.loads(os.environ[variable])
    except ValueError:
        raise _unknown(name, f"a JSON object in {variable}", "a text that is none") from None


def _of_file(file: Path, name: str, variable: str) -> Any:
    expected = f"the connection {name} in {file}, or in the environment variable {variable}"
    try:
        mode = file.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            mode_found = f"mode {stat.S_IMODE(mode):o}: others may read its passwords"
            raise _unknown(name, f"{file} to be readable by its owner alone", mode_found, f"chmod 600 {file}")
        document, problems = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unknown(name, expected, f"no such file ({type(error).__name__})") from None
    if problems or not isinstance(document, dict):
        # a problem's text may quote a line with a password
        raise _unknown(name, f"{file} to be a mapping of names to connections, in YAML", "something else")
    if name not in document:
        raise _unknown(name, expected, f"{', '.join(map(str, document)) or 'none'} there")
    return document[name]


def _unknown(name: str, expected: str, finding: str, next_step: str = "") -> ConnectionUnknown:
    return ConnectionUnknown(
        expected=expected,
        found=finding,
        consequence="nothing was read",
        next_step=next_step
        or "write it as README shows under 'Tables and topics'; TIDEMARK_CONNECTIONS names another file",
        connection=name,
    )
