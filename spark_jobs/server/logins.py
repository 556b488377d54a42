"""Logins of SQL over JDBC: a file of mode 0600 in the home, with a line `user role password` for each user.

The roles are `reader` and `writer`. The file is made at the first start, with a user of each role. People edit it; a
change takes effect at the next login. A line without a password gives a role to a user whose password another provider
checks.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server.errors import LoginMissing, PlaintextRefused

READABLE = (
    *("silver.*", "gold.*", "marts.*", "quality.*", "pins.*"),
    *("bronze.*_deltas", "bronze.files", "bronze.extracts", "bronze.quarantine", "bronze.duplicates"),
    *("trace.publications", "trace.*_corrections"),
    *("*__silver.*", "*__gold.*"),
)
"""The tables that readers may read, as `database.table`, where `*` matches any part of a name. `__` separates the name
of an environment from a layer."""

UNPUBLISHED = ("silver.*_history", "gold.*_history")
"""The readable tables that contain rows not yet published. Readers may read them only through views."""

PUBLISHED = ("bronze", "trace", "silver", "gold", "marts", "quality", "pins")
"""The databases that only runs write. No login may write them."""

_HEADER = """\
# Logins of SQL over JDBC: user, role (reader or writer), password. A change holds from the next login on.
# Without a password the line gives a role to a user of TIDEMARK_LOGIN_PROVIDER; its other users are readers.
"""


@dataclass(frozen=True, slots=True)
class Login:
    """A user of SQL over JDBC, and the user's password."""

    user: str
    password: str


def ensure_logins(settings: Settings) -> None:
    """Make the file of logins, with a user of each role. If it exists, only set its mode to 0600.

    Passwords are hexadecimal: an SQL client reads a password that begins with a hyphen as an option.
    """
    path = settings.logins_file
    if path.exists():
        path.chmod(0o600)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{role} {role} {secrets.token_hex(16)}\n" for role in ("reader", "writer")]
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # created with mode 0600
        file.writelines([_HEADER, *lines])
    Path(file.name).replace(path)


def login(settings: Settings, role: str) -> Login:
    """The first user in the file that has this role and a password.

    Raises:
        LoginMissing: the file is missing or may not be read by this process, or it has no such user.
    """
    try:
        lines = settings.logins_file.read_text().splitlines()
    except OSError as error:
        raise _login_missing(settings, role, error.strerror or str(error)) from None
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[1] == role and not words[0].startswith("#"):
            return Login(words[0], words[2])
    raise _login_missing(settings, role, "no such line")


def _login_missing(settings: Settings, role: str, finding: str) -> LoginMissing:
    return LoginMissing(
        expected=f"a user of the role {role} with a password in {settings.logins_file}",
        found=finding,
        consequence="SQL over JDBC was not asked",
        next_step="add the line `user role password` there; without the file `tidemark up` makes a new one",
    )


def expect_private(settings: Settings) -> None:
    """Check that passwords and rows are not sent unencrypted over a network.

    Raises:
        PlaintextRefused: the ports are bound beyond the loopback, without TLS, and the settings do not allow that
            (`plaintext`).
    """
    if settings.plaintext or settings.tls_keystore is not None or _is_loopback(settings.bind_address):
        return
    raise PlaintextRefused(
        expected="TLS where the ports are bound beyond the loopback",
        found=f"TIDEMARK_BIND_ADDRESS={settings.bind_address}, and no TIDEMARK_TLS_KEYSTORE",
        consequence="nothing was started: passwords and rows would be readable on the network",
        next_step="set TIDEMARK_TLS_KEYSTORE and TIDEMARK_TLS_PASSWORD (`keytool -genkeypair`), bind to 127.0.0.1, or"
        " say TIDEMARK_PLAINTEXT=true where something else keeps the network out, as in a container",
    )


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def server_conf(settings: Settings) -> dict[str, str]:
    """The lake server's Spark settings for logins, TLS, rights and limits."""
    conf = {
        "spark.hadoop.hive.server2.authentication": "CUSTOM",
        "spark.hadoop.hive.server2.enable.doAs": "false",
        "spark.hadoop.hive.server2.allow.user.substitution": "false",
        "spark.tidemark.logins": str(settings.logins_file),
        "spark.tidemark.login.provider": settings.login_provider,
        "spark.tidemark.readable": ",".join(READABLE),
        "spark.tidemark.unpublished": ",".join(UNPUBLISHED),
        "spark.tidemark.published": ",".join(PUBLISHED),
        "spark.tidemark.scratch.days": str(settings.scratch_days),
        "spark.tidemark.reader.seconds": str(settings.reader_seconds),
        "spark.tidemark.reader.rows": str(settings.reader_rows),
        "spark.tidemark.reader.bytes": str(settings.reader_bytes),
        "spark.tidemark.reader.statements": str(settings.reader_statements),
        "spark.tidemark.reader.sessions": str(settings.reader_sessions),
        "spark.tidemark.reader.heap": str(settings.reader_heap),
        # one thread per connection: those of all readers (Limit.sessionsOfAll), those that log in, the pipeline's
        "spark.hadoop.hive.server2.thrift.max.worker.threads": str(10 * settings.reader_sessions + 400),
    }
    if settings.ldap_url:
        conf |= {
            "spark.tidemark.ldap.url": settings.ldap_url,
            "spark.tidemark.ldap.user": settings.ldap_user_pattern,
        }
    if settings.tls_keystore is not None:
        password = settings.tls_password.get_secret_value() if settings.tls_password else ""
        conf |= {
            "spark.hadoop.hive.server2.use.SSL": "true",
            "spark.hadoop.hive.server2.keystore.path": str(settings.tls_keystore),
            "spark.hadoop.hive.server2.keystore.password": password,
        }
    return conf
