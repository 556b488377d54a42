"""The client side of Spark Connect: this installation's own programs use a Unix socket in a folder that only their user
can enter.

Over Spark's port, a client sends its token to any listener, and reopens lost connections by itself. So no check before
could help. The lake server has the socket beside Spark's port; both serve the same sessions. Spark's port is for
programs of other machines, and for those that bring the token themselves (`TIDEMARK_TOKEN`).
"""

from __future__ import annotations

import socket
import warnings
from concurrent.futures import wait
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from spark_jobs.config import Settings
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.server.listeners import expect_private_folder, expect_trusted_listener, socket_folder

if TYPE_CHECKING:
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient

_NAME = "connect.sock"
RELEASES_S = 10
"""The most seconds that the end of a session waits for its statements' results to be released."""


def connect_socket(settings: Settings) -> Path:
    """The path of the lake server's Unix socket for Spark Connect."""
    return settings.connect_socket or socket_folder(settings, settings.server_dir, _NAME) / _NAME


def connect_address(settings: Settings) -> str:
    """The address that this process connects to: the socket's path, or host and port."""
    return f"{settings.server_host}:{settings.connect_port}" if _by_port(settings) else str(connect_socket(settings))


def channel_builder(settings: Settings, app_name: str = "tidemark") -> DefaultChannelBuilder:
    """The builder of pyspark's channel to the lake server, once a connection to it was accepted.

    Raises:
        ServerUnreachable: no connection was accepted.
        ForeignListener: another user's process listens at the port.
        ConfigurationError: other users may enter the socket's folder.
    """
    _expect_server(settings)  # before the slow imports
    token = settings.connect_token() or ""
    if _by_port(settings):
        from pyspark.sql.connect.client import DefaultChannelBuilder

        return DefaultChannelBuilder(_url(settings, token, app_name))
    return _through_socket(connect_socket(settings), token, app_name)


def unreachable(settings: Settings, reason: str) -> ServerUnreachable:
    """The error to raise if the lake server does not answer."""
    address = connect_address(settings)
    return ServerUnreachable(
        expected=f"the lake server at {address}",
        found=reason,
        next_step="start it with `tidemark up`, look at it with `tidemark status`, or set TIDEMARK_SPARK=classic",
        address=address,
    )


def _by_port(settings: Settings) -> bool:
    """True if the server is another home's: this home has no socket, and the settings name a token."""
    return settings.token is not None and not connect_socket(settings).exists()


def _expect_server(settings: Settings) -> None:
    try:
        if _by_port(settings):
            address = (settings.server_host, settings.connect_port)
            with socket.create_connection(address, settings.connect_timeout_s) as connection:
                expect_trusted_listener(settings, connection)
            return
        path = connect_socket(settings)
        expect_private_folder(settings, path.parent)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(settings.connect_timeout_s)
            connection.connect(str(path))
    except OSError as error:
        raise unreachable(settings, f"no answer ({error.strerror or error})") from None


def _url(settings: Settings, token: str, app_name: str) -> str:
    """The `sc://` address with the token. pyspark uses TLS for every host but the one named `localhost`."""
    try:
        host = "localhost" if ip_address(settings.server_host).is_loopback else settings.server_host
    except ValueError:
        host = settings.server_host
    parts = [f"user_agent={quote(app_name)}"] + ([f"token={quote(token, safe='')}"] if token else [])
    return f"sc://{host}:{settings.connect_port}/;{';'.join(parts)}"


def _through_socket(path: Path, token: str, app_name: str) -> DefaultChannelBuilder:
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder

    class Through(ChannelBuilder):
        @property
        def host(self) -> str:
            return str(path)

        @property
        def token(self) -> str | None:
            return token or None

        def toChannel(self) -> Any:  # noqa: N802  (pyspark's name)
            credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
            if token:
                bearer = grpc.access_token_call_credentials(token)
                credentials = grpc.composite_channel_credentials(credentials, bearer)
            return self._secure_channel(f"unix:{quote(str(path))}", credentials)

    # pyspark takes any builder of channels, though its type hints name its own
    return cast("DefaultChannelBuilder", Through(params={ChannelBuilder.PARAM_USER_AGENT: app_name}))


def retry_briefly(client: SparkConnectClient) -> None:
    """Make calls give up after about 10 s without a server; pyspark's own policy retries for 10 minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # the error that follows explains the same
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    client.set_retry_policies([DefaultPolicy(max_retries=5, initial_backoff=100, max_backoff=4000)])


def release_in_order(client: SparkConnectClient) -> None:
    """Make the end of the client's session wait until the results of its statements are released.

    pyspark asks for these releases in threads, and waits for them only once the session is gone. The server then
    refuses the last ones, and both logs get an error though nothing went wrong.
    """
    end_session = client.release_session

    def end_in_order() -> None:
        wait([*client._release_futures], timeout=RELEASES_S)
        end_session()

    # pyspark has no hook between the two
    client.release_session = end_in_order  # type: ignore[method-assign]
