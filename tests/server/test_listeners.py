"""No secret goes to another user's process: lake server and Airflow are away, and somebody has taken their ports."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.publish.marts import dbt_environment
from spark_jobs.server.airflow_api import AirflowApi
from spark_jobs.server.connect_client import channel_builder, connect_socket
from spark_jobs.server.errors import ForeignListener
from spark_jobs.server.health import airflow_health, connect_health, sql_health
from spark_jobs.server.lake import new_token
from spark_jobs.server.listeners import expect_trusted_listener
from spark_jobs.server.logins import ensure_logins, login
from spark_jobs.server.preloaded import check_listeners
from spark_jobs.server.thrift_client import certificates_file, thrift_connection, thrift_query
from tests.server.squatters import needs_other_user, squatting


@pytest.fixture
def home(tmp_path: Path, installation: Callable[[Path], Settings]) -> Settings:
    """An installation that has served before: its logins and its token lie there."""
    settings = installation(tmp_path / "home")
    settings.server_dir.mkdir(parents=True, exist_ok=True)
    settings.server_dir.chmod(0o700)
    ensure_logins(settings)
    new_token(settings)
    return settings.model_copy(update={"connect_timeout_s": 5.0})


def by_dbt(settings: Settings) -> None:
    """A connection as dbt opens it for a mart."""
    with dbt_environment(settings, 1, {}, {}, rows=0):
        from dbt.adapters.spark import connections

        connections.hive.connect(host=settings.server_host, port=settings.thrift_port, configuration={})


def ask_airflow(settings: Settings) -> None:
    with AirflowApi(settings, timeout_s=5) as airflow:
        airflow.get("dags")


def by_a_task(settings: Settings) -> None:
    """A call as Airflow's tasks make it."""
    from airflow.sdk.api.client import Client

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "request", Client.request)
        check_listeners(settings)
        Client(base_url=settings.airflow_url, token="of a task").get("task-instances")


ASK: dict[str, Callable[[Settings], object]] = {
    "sql": lambda settings: thrift_query(settings, "SELECT 1", 5, role="writer"),
    "marts": by_dbt,
    "sql under localhost": lambda settings: thrift_query(
        settings.model_copy(update={"server_host": "localhost"}), "SELECT 1", 5
    ),
    "airflow": ask_airflow,
    "tasks": by_a_task,
    "connect by its port": lambda settings: channel_builder(settings.model_copy(update={"token": SecretStr("x" * 32)})),
}


@needs_other_user
@pytest.mark.parametrize("name", ASK)
def test_another_users_process_is_given_nothing_and_named(home: Settings, name: str) -> None:
    with squatting(home.thrift_port, home.connect_port, home.airflow_port) as squatter:
        with pytest.raises(ForeignListener, match="nothing was sent there") as refusal:
            ASK[name](home)
        accepted, received = squatter.end()
    assert refusal.value.facts["user"] == 65534
    assert accepted > 0, "the squatter was there"
    assert received == 0


@needs_other_user
def test_health_says_who_listens_and_gives_them_nothing(home: Settings) -> None:
    with squatting(home.thrift_port, home.connect_port, home.airflow_port) as squatter:
        answers = [ask(home) for ask in (sql_health, connect_health, airflow_health)]
        accepted, received = squatter.end()
    assert [answer.ok for answer in answers] == [False] * 3
    assert "nobody" in answers[0].detail
    assert "nobody" in answers[2].detail
    assert "No such file" in answers[1].detail, "the token generated here goes through no port"
    assert (accepted > 0, received) == (True, 0)


@needs_other_user
def test_a_folder_of_another_user_in_the_sockets_place_is_refused(
    home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    long_home = home.model_copy(update={"home": tmp_path / ("ä" * 60)})
    folder = connect_socket(long_home).parent
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(TidemarkError, match="others could reach it"):
        channel_builder(long_home)


@contextmanager
def listening(family: socket.AddressFamily, address: str) -> Iterator[socket.socket]:
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as server:
        yield server


@pytest.mark.parametrize(
    ("family", "address", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_process_of_our_own_is_trusted(
    settings: Settings, family: socket.AddressFamily, address: str, asked: str
) -> None:
    with listening(family, address) as server, socket.create_connection((asked, server.getsockname()[1]), 5) as client:
        accepted, _ = server.accept()
        expect_trusted_listener(settings, client)
        client.sendall(b"a secret")
        assert accepted.recv(8) == b"a secret"
        accepted.close()


def test_a_connection_that_nobody_has_accepted_is_waited_for_and_not_believed(settings: Settings) -> None:
    with listening(socket.AF_INET, "127.0.0.1") as server:
        client = socket.create_connection(server.getsockname(), 0.2)
        with pytest.raises(TimeoutError, match="nobody accepted"):
            expect_trusted_listener(settings, client)
        assert client.fileno() == -1, "it is closed"


def certificate(folder: Path, name: str) -> Path:
    """A key and its certificate, as one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    # its time has passed: keytool gives 90 days, and the file beside the logins is what counts
    end = begin + datetime.timedelta(days=90)
    made = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
    signed = made.not_valid_before(begin).not_valid_after(end).sign(key, hashes.SHA256())
    path = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.mark.parametrize("shown", ["ours", "another"])
def test_under_tls_the_login_goes_to_our_own_certificate_alone(home: Settings, tmp_path: Path, shown: str) -> None:
    files = {name: certificate(tmp_path, name) for name in ("ours", "another")}
    certificates_file(home).write_text(files["ours"].read_text().partition("-----BEGIN PRIVATE")[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[shown])
    received = []
    with listening(socket.AF_INET, "127.0.0.1") as server:

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True) as connection:
                received.append(connection.recv(1000))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        asked = home.model_copy(update={"thrift_port": server.getsockname()[1], "tls_keystore": tmp_path / "keystore"})
        expected = ForeignListener if shown == "another" else Exception
        with pytest.raises(expected) as refusal:
            thrift_connection(asked, login(home, "writer"), 5)
        thread.join(10)
    assert isinstance(refusal.value, ForeignListener) == (shown == "another")
    assert bool(b"".join(received)) == (shown == "ours")


def test_each_start_has_a_token_of_its_own(home: Settings) -> None:
    before = home.connect_token()
    assert new_token(home) == home.connect_token() != before
    assert home.token_file.stat().st_mode & 0o777 == 0o600
