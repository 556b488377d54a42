"""Settings: one source of truth, everything under home, every wrong knob named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.s3 import environment_options, options_of, spark_settings
from tests.installations import ODD_NAME


def test_every_place_is_under_home_unless_named(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "here")
    places = [settings.lake_path, settings.landing, settings.server_dir, settings.airflow_home, settings.logs_dir]
    assert all(isinstance(place, Path) and place.is_relative_to(tmp_path / "here") for place in places)


def test_a_child_process_gets_the_same_settings_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = Settings(home=tmp_path, thrift_port=12345, lake="s3a://bucket/lake/", heap="512m", spark_conf={"a": "b"})
    for name, value in parent.environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == parent
    assert parent.lake == "s3a://bucket/lake"


def test_one_set_of_variables_says_where_s3_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "here")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    sparks = spark_settings(str(tmp_path))
    assert "a-secret" not in str(sparks)
    patience = {"max_retries": "10000", "retry_timeout": "120s", "backoff_config.max_backoff": "5s"}
    assert options_of(sparks) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_REGION": "here",
        "AWS_ALLOW_HTTP": "true",
        **patience,
    }
    assert environment_options("s3a://bucket/lake") == {"AWS_ALLOW_HTTP": "true", **patience}
    assert environment_options("/srv/lake") == environment_options("hdfs://name/lake") == {}
    assert options_of({"spark.hadoop.fs.s3a.endpoint": "s3.example.org"}) == {
        "AWS_ENDPOINT_URL": "https://s3.example.org",
        **patience,
    }


def test_the_token_is_not_in_the_environment_of_children(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, token=SecretStr("a-secret"))
    assert "a-secret" not in str(settings.environment())
    assert "a-secret" not in repr(settings)


def test_the_password_of_the_mail_server_is_left_to_the_environment_that_has_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, smtp=SecretStr("smtp://user:a-secret@mail.example.org"))
    assert "TIDEMARK_SMTP" not in settings.environment()
    assert "a-secret" not in repr(settings)


def test_all_wrong_knobs_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_THRIFT_PORT", "many")
    monkeypatch.setenv("TIDEMARK_HEAP", "3 gigabytes")
    with pytest.raises(ConfigurationError) as refusal:
        load_settings()
    assert "TIDEMARK_THRIFT_PORT='many'" in str(refusal.value)
    assert "TIDEMARK_HEAP='3 gigabytes'" in str(refusal.value)
    assert len(refusal.value.facts["problems"]) == 2


@pytest.mark.parametrize(
    ("knob", "character", "breaks"),
    [
        ("home", '"', "Java's options"),
        ("home", "\\", "Java's options"),
        ("home", ",", "spark.local.dir"),
        ("home", ";", "Derby"),
        ("home", ":", "Derby"),
        ("home", "${", "a variable"),
        ("home", "\n", "one setting a line"),
        ("home", "\0", "one setting a line"),
        ("lake", "\\", "Spark's properties"),
        ("lake", "\r", "one setting a line"),
        ("jars", ":", "class path"),
        ("jars", "!/", "in a jar"),
        ("jars", '"', "Java's options"),
        ("jars", "\\", "Java's options"),
        ("jars", "\n", "one setting a line"),
    ],
)
def test_a_folder_that_spark_or_java_would_misread_is_refused_by_its_character(
    tmp_path: Path, knob: str, character: str, breaks: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load_settings(**{knob: f"{tmp_path}/a{character}b"})
    (problem,) = refusal.value.facts["problems"]
    assert problem.startswith(f"TIDEMARK_{knob.upper()}=")
    assert repr(character) in problem
    assert breaks in problem
    assert "take another" in problem


def test_odd_names_that_nothing_misreads_are_taken(tmp_path: Path) -> None:
    odd = str(tmp_path / f"{ODD_NAME}\u00a0it's & (so) [1] {{2}} ~ $HOME *?")
    taken = load_settings(home=odd, jars=odd + "!,;", lake="s3a://bucket/a;b")
    assert (str(taken.home), taken.lake) == (odd, "s3a://bucket/a;b")


def test_a_relative_home_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(home=Path("data")).home == tmp_path / "data"


def test_settings_cannot_be_changed(settings: Settings) -> None:
    with pytest.raises(ValidationError):
        settings.thrift_port = 1


def test_every_knob_says_its_reason() -> None:
    undocumented = [name for name, field in Settings.model_fields.items() if not field.description]
    assert undocumented == []


def test_keys_of_s3_may_be_files_where_no_variable_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "aws_access_key_id").write_text("id\n")
    (tmp_path / "aws_secret_access_key").write_text("key\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    load_settings(home=tmp_path / "home", secrets=tmp_path)
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_") and "KEY" in name}
    assert keys == {"AWS_ACCESS_KEY_ID": "of the environment", "AWS_SECRET_ACCESS_KEY": "key"}
    assert "AWS_SESSION_TOKEN" not in os.environ


def test_airflow_has_an_address_for_processes_and_one_for_people(tmp_path: Path) -> None:
    here = Settings(home=tmp_path, airflow_port=80)
    assert (here.airflow_url, here.airflow_page) == ("http://127.0.0.1:80", "http://127.0.0.1:80")
    apart = here.model_copy(update={"airflow_host": "api", "airflow_public_url": "https://a.example.org/air"})
    assert (apart.airflow_url, apart.airflow_page) == ("http://api:80", "https://a.example.org/air")
    assert apart.page_url("index") == "https://a.example.org/air/tidemark/index.html"


@pytest.mark.parametrize("url", ["a.example.org", "https://", "https://a.example.org/"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValidationError):
        Settings(home=tmp_path, airflow_public_url=url)
