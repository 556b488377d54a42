"""The file of logins, and what must be so before passwords go over a wire."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.server.errors import LoginMissing, PlaintextRefused
from spark_jobs.server.logins import Login, ensure_logins, expect_private, login, server_conf


def test_the_first_start_makes_a_user_of_each_role_in_a_private_file(settings: Settings) -> None:
    ensure_logins(settings)
    assert stat.S_IMODE(settings.logins_file.stat().st_mode) == 0o600
    reader, writer = login(settings, "reader"), login(settings, "writer")
    assert (reader.user, writer.user) == ("reader", "writer")
    assert reader.password != writer.password
    assert len(reader.password) >= 24


def test_no_generated_password_can_be_read_as_an_option(settings: Settings) -> None:
    for _ in range(50):
        ensure_logins(settings)
        assert login(settings, "reader").password.isalnum()
        settings.logins_file.unlink()


def test_what_people_wrote_into_the_file_stays_and_becomes_private(settings: Settings) -> None:
    settings.logins_file.parent.mkdir(parents=True)
    settings.logins_file.write_text("# ours\nann reader\nbob reader secret\n")
    settings.logins_file.chmod(0o644)
    ensure_logins(settings)
    assert stat.S_IMODE(settings.logins_file.stat().st_mode) == 0o600
    assert login(settings, "reader") == Login("bob", "secret")


def test_a_role_without_a_user_is_refused_with_the_file_to_edit(settings: Settings) -> None:
    with pytest.raises(LoginMissing, match=str(settings.logins_file)):
        login(settings, "writer")


def test_ldap_is_configured_by_settings(settings: Settings) -> None:
    pattern = "uid=%s,ou=people,dc=example,dc=org"
    conf = server_conf(
        settings.model_copy(
            update={"login_provider": "ldap", "ldap_url": "ldaps://a.example", "ldap_user_pattern": pattern}
        )
    )
    assert conf["spark.tidemark.login.provider"] == "ldap"
    assert conf["spark.tidemark.ldap.url"] == "ldaps://a.example"
    assert conf["spark.tidemark.ldap.user"] == pattern


def test_beyond_the_loopback_there_must_be_tls(settings: Settings) -> None:
    outside = settings.model_copy(update={"bind_address": "0.0.0.0"})
    with pytest.raises(PlaintextRefused, match="TIDEMARK_TLS_KEYSTORE"):
        expect_private(outside)
    expect_private(outside.model_copy(update={"plaintext": True}))
    expect_private(outside.model_copy(update={"tls_keystore": Path("/a/keystore")}))
    expect_private(settings)
