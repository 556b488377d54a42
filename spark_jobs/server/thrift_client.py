"""Connections through the Thrift port, as a JDBC client opens them. A login is sent only to our own server.

On this machine the owner of the listening process is checked. With TLS, the server must show a certificate of our
keystore; the start of the server writes those to a file beside the logins. If that file is missing, as on another
machine, the server needs a certificate by an authority that the system trusts.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.server.errors import ForeignListener
from spark_jobs.server.listeners import expect_trusted_listener
from spark_jobs.server.logins import Login, login


def thrift_connection(settings: Settings, user: Login, timeout_s: float | None = 30.0, **wishes: Any) -> Any:
    """A connection of PyHive. `wishes` are further arguments of `hive.Connection`.

    `timeout_s` is the limit for each answer, in seconds; None waits without a limit.

    Raises:
        ForeignListener: another user's process listens at the port, or one with another certificate.
    """
    import thrift_sasl
    from pyhive import hive

    def sasl() -> Any:
        return hive.get_installed_sasl(
            host=settings.server_host, sasl_auth="PLAIN", username=user.user, password=user.password
        )

    channel = _channel(settings)
    channel.setTimeout(None if timeout_s is None else timeout_s * 1000)
    return hive.Connection(thrift_transport=thrift_sasl.TSaslClientTransport(sasl, "PLAIN", channel), **wishes)


def thrift_query(
    settings: Settings, statement: str, timeout_s: float = 30.0, *, role: str = "reader", user: Login | None = None
) -> list[tuple[Any, ...]]:
    """The rows of one statement through the Thrift port, as a JDBC client would get them; empty if it returns none.

    The client is `user`, or else the first user of the role `role`."""
    from thrift.transport.TTransport import TTransportException

    connection = thrift_connection(settings, user or login(settings, role), timeout_s)
    try:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
    except TTransportException:
        # a late answer would be taken for the answer to closing the session
        connection._transport.close()
        raise
    except BaseException:
        connection.close()
        raise
    connection.close()
    return rows


def certificates_file(settings: Settings) -> Path:
    """The file of the certificates in the server's keystore, as PEM; the start of the server writes it."""
    return settings.server_dir / "jdbc.pem"


def _channel(settings: Settings) -> Any:
    """A Thrift socket that checks the listener once the connection is open, before anything is sent."""
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TSSLSocket import TSSLSocket
    from thrift.transport.TTransport import TTransportException

    plain = settings.tls_keystore is None
    pinned = set() if plain else _pinned_certificates(settings)
    sockets: Any = TSocket if plain else TSSLSocket

    class Checked(sockets):  # type: ignore[misc]  # the library has no types
        def open(self) -> None:
            super().open()
            try:
                expect_trusted_listener(settings, self.handle)
            except OSError as error:
                address = (settings.server_host, settings.thrift_port)
                message = f"Could not connect to any of [{address}]: {error}"
                raise TTransportException(TTransportException.NOT_OPEN, message) from error
            if pinned and self.handle.getpeercert(binary_form=True) not in pinned:
                self.handle.close()
                raise _other_certificate(settings)

    tls = {} if plain else {"ssl_context": _context(verified=not pinned), "validate_callback": lambda *_: None}
    return Checked(settings.server_host, settings.thrift_port, **tls)


def _context(*, verified: bool) -> ssl.SSLContext:
    """The TLS context. If `verified`, the server needs a certificate by a trusted authority. If not, any certificate is
    accepted here, and then compared with ours."""
    context = ssl.create_default_context()
    if not verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _pinned_certificates(settings: Settings) -> set[bytes]:
    """The certificates that our server may show, as DER; empty if its files are not on this machine."""
    try:
        text = certificates_file(settings).read_text()
    except FileNotFoundError:
        return set()
    end = "-----END CERTIFICATE-----"
    return {ssl.PEM_cert_to_DER_cert(f"{part.strip()}\n{end}") for part in text.split(end) if part.strip()}


def _other_certificate(settings: Settings) -> ForeignListener:
    address = f"{settings.server_host}:{settings.thrift_port}"
    return ForeignListener(
        expected=f"the certificate of {settings.tls_keystore} at {address}",
        found="another certificate",
        consequence="nothing was sent there: no password",
        next_step="if the keystore was changed, restart the lake server (`tidemark down` and `up`); else find out who"
        " listens there",
        address=address,
        user=None,
    )
