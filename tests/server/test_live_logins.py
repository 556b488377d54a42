"""SQL over JDBC of a real lake server with TLS, and with a directory that checks passwords: OpenLDAP's server."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.jvm.java import find_java
from spark_jobs.server.logins import Login, login
from spark_jobs.server.thrift_client import thrift_connection, thrift_query
from tests.installations import TIDEMARK, Installation, free_port, listens, until

SLAPD = shutil.which("slapd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.server,
    pytest.mark.turns(together=True),
    pytest.mark.timeout(600),
    pytest.mark.skipif(SLAPD is None, reason="needs slapd (apt-get install slapd)"),
]

PEOPLE = "ou=people,dc=example,dc=org"
ANN, BOB = Login("ann", "a pass: wörd"), Login("böb", "bob's")
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=example,dc=org"
directory "{folder}"
"""
ENTRIES = """
dn: dc=example,dc=org
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people
"""
PERSON = """
dn: uid={user},ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: {user}
cn: {user}
sn: {user}
userPassword: {password}
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a directory with two people."""
    assert SLAPD is not None
    folder = tmp_path_factory.mktemp("directory")
    (folder / "slapd.conf").write_text(CONFIGURATION.format(folder=folder))
    people = (PERSON.format(user=each.user, password=each.password) for each in (ANN, BOB))
    (folder / "people.ldif").write_text("".join([ENTRIES, *people]))
    configuration = ("-f", str(folder / "slapd.conf"))
    adds = Path(SLAPD).with_name("slapadd")
    subprocess.run([adds, *configuration, "-l", str(folder / "people.ldif")], check=True, capture_output=True)
    port = free_port()
    url = f"ldap://127.0.0.1:{port}"
    server = subprocess.Popen([SLAPD, *configuration, "-h", url, "-d", "0"])
    try:
        until(lambda: listens(port), 30, "slapd does not listen")
        yield url
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def keystore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keystore with a certificate."""
    path = tmp_path_factory.mktemp("tls") / "keystore.p12"
    keytool = find_java().executable.with_name("keytool")
    words = ("-alias", "lake", "-keyalg", "RSA", "-dname", "CN=lake.example", "-storepass", "changeit")
    command = [str(keytool), "-genkeypair", *words, "-storetype", "PKCS12", "-keystore", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def lake(directory: str, keystore: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(
        tmp_path_factory.mktemp("home"),
        tls_keystore=keystore,
        login_provider="ldap",
        ldap_url=directory,
        ldap_user_pattern=f"uid=%s,{PEOPLE}",
    )
    # no file and no list of settings has it
    installation.environment["TIDEMARK_TLS_PASSWORD"] = "changeit"
    with installation.serving("--no-airflow"):
        # a change holds from the next login on
        with installation.settings.logins_file.open("a") as logins:
            logins.write(f"{BOB.user} writer\n")
        yield installation


def ask(lake: Installation, user: Login, statement: str) -> list[tuple[object, ...]]:
    return thrift_query(lake.settings, statement, user=user)


def test_jdbc_speaks_tls_with_the_certificate_of_the_keystore_and_nothing_else(lake: Installation) -> None:
    certificate = ssl.get_server_certificate((lake.settings.server_host, lake.settings.thrift_port))
    assert b"lake.example" in ssl.PEM_cert_to_DER_cert(certificate)
    without = lake.settings.model_copy(update={"tls_keystore": None})
    with pytest.raises(Exception, match=r"read 0 bytes|TSocket"):
        thrift_connection(without, login(lake.settings, "reader"), 10)


def test_users_of_the_file_and_of_the_directory_log_in(lake: Installation) -> None:
    assert ask(lake, login(lake.settings, "reader"), "SELECT current_user()") == [("reader",)]
    assert ask(lake, ANN, "SELECT current_user()") == [("ann",)]
    status = lake.run(str(TIDEMARK), "status")
    assert status.returncode == 0, status.stdout


def test_the_file_gives_a_user_of_the_directory_a_role_and_others_read(lake: Installation) -> None:
    assert ask(lake, BOB, "SELECT current_user()") == [("böb",)]
    ask(lake, ANN, "CREATE TABLE scratch_ann.mine USING delta AS SELECT 1 AS a")
    ask(lake, BOB, "CREATE DATABASE of_bob")
    with pytest.raises(Exception, match="not_allowed"):
        ask(lake, ANN, "CREATE DATABASE of_ann")


@pytest.mark.parametrize(
    ("user", "password"),
    [("ann", "wrong"), ("ann", ""), ("nobody", "x"), ("reader", "wrong"), ("ann,ou=people", ANN.password), ("*", "x")],
)
def test_another_password_is_refused(lake: Installation, user: str, password: str) -> None:
    with pytest.raises(Exception, match=r"Error validating|Invalid credentials|login_refused"):
        ask(lake, Login(user, password), "SELECT 1")
