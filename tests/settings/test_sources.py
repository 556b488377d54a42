"""The sources of settings: their order, the settings file and its refusals, profiles, secrets, origins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from spark_jobs.cli.app import run
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.plugins.folder import plugins
from spark_jobs.server.airflow_parts import airflow_environment
from spark_jobs.server.profile import expect_complete
from spark_jobs.settings import file as settings_file
from spark_jobs.settings.origins import read_origins
from spark_jobs.settings.secret_texts import hide_secrets
from spark_jobs.settings.sources import IN_SECRET_FILES, PROFILES, REQUIRED, SECRETS

Write = Callable[[str], Path]


@pytest.fixture
def write(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A function that writes the settings file of a project; the working folder is two folders below it."""
    monkeypatch.delenv("TIDEMARK_CONFIG")
    below = tmp_path / "project" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    def write_file(text: str) -> Path:
        path = tmp_path / "project" / "tidemark.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def problems_of(**overrides: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        load_settings(**overrides)
    problems = refusal.value.facts["problems"]
    assert all(problem in str(refusal.value) for problem in problems)
    return problems


def test_the_order_is_default_profile_secrets_file_environment_arguments(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value() -> str | None:
        return load_settings().metastore_url

    path = write("")
    assert (load_settings().shuffle_partitions, value()) == (4, None)
    write('profile = "cluster"')
    assert load_settings().shuffle_partitions == PROFILES["cluster"]["shuffle_partitions"]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "tidemark_metastore_url").write_text("of a secret\n")
    write('profile = "cluster"\nsecrets = "../secrets"')
    assert value() == "of a secret"
    path.write_text(path.read_text() + '\nmetastore_url = "of the file"\nshuffle_partitions = 5\n')
    assert (load_settings().shuffle_partitions, value()) == (5, "of the file")
    monkeypatch.setenv("TIDEMARK_METASTORE_URL", "of the environment")
    assert value() == "of the environment"
    assert load_settings(metastore_url="of an argument").metastore_url == "of an argument"


def test_the_nearest_file_counts_alone_and_the_environment_may_name_another(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('heap = "4g"\nthrift_port = 1234\n')
    Path("../tidemark.toml").write_text('heap = "5g"')
    assert (load_settings().heap, load_settings().thrift_port) == ("5g", 10000)
    (tmp_path / "other.toml").write_text('heap = "6g"\nhome = "x"')
    monkeypatch.setenv("TIDEMARK_CONFIG", "../../../other.toml")
    assert (load_settings().heap, load_settings().home) == ("6g", tmp_path / "x")
    monkeypatch.setenv("TIDEMARK_CONFIG", "")
    assert load_settings().heap == "3g"
    monkeypatch.setenv("TIDEMARK_CONFIG", "none.toml")
    with pytest.raises(ConfigurationError, match=r"settings file .*/b/none\.toml to be TOML.* No such file"):
        load_settings()


def test_relative_paths_are_below_the_files_folder(write: Write, tmp_path: Path) -> None:
    lines = [f'{name} = "of/{name}"' for name in settings_file.PATHS if name != "secrets"]
    write("\n".join([*lines, 'jdbc_jars = "one.jar:/srv/two.jar"', 'secrets = "."']))
    settings = load_settings()
    folder = tmp_path / "project"
    assert settings.secrets == folder
    for name in settings_file.PATHS:
        assert name == "secrets" or str(getattr(settings, name)) == f"{folder}/of/{name}"
    assert settings.jdbc_jars == f"{folder}/one.jar:/srv/two.jar"
    write('lake = "s3a://bucket/lake/"\nlanding = "s3a://bucket/landing"\nbackup = "s3a://b/k"\nhome = "~/tides"')
    settings = load_settings()
    assert (settings.lake, settings.landing, settings.backup) == (
        "s3a://bucket/lake",
        "s3a://bucket/landing",
        "s3a://b/k",
    )
    assert settings.home == Path.home() / "tides"


def test_each_setting_that_is_a_path_is_listed_as_one() -> None:
    of_types = {
        name for name, field in Settings.model_fields.items() if Path in (field.annotation, *get_args(field.annotation))
    }
    assert of_types <= {*settings_file.PATHS}
    assert {*settings_file.PATHS} - of_types == {"lake", "backup"}


def test_relative_paths_of_the_environment_are_below_the_working_folder(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("")
    for name in ("BACKUP", "CONNECT_SOCKET", "JDBC_JARS", "LAKE"):
        monkeypatch.setenv(f"TIDEMARK_{name}", "x")
    settings = load_settings()
    here = str(Path.cwd() / "x")
    assert {settings.backup, str(settings.connect_socket), settings.jdbc_jars, settings.lake} == {here}


def test_all_problems_of_a_file_and_of_the_environment_are_named_at_once(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        'thrift_prot = 10001\nHeap = "4g"\nheap = "4 gigabytes"\nprofile = "clutser"\nadaptive = "perhaps"\n'
        "[server]\nport = 1\n[spark_conf]\nspark.a = [1]\nconnect_port = 5\n"
    )
    monkeypatch.setenv("TIDEMARK_AIRFLOW_PORT", "many")
    unknown, case, table, inside, *wrong = problems_of()
    assert unknown == f"thrift_prot in {path} (expected the name of a setting; the closest is thrift_port)"
    assert case == f"Heap in {path} (expected the name of a setting; the closest is heap)"
    assert table.startswith(f"the table server in {path} (only spark_conf is a table")
    assert inside.startswith(f"spark_conf.connect_port in {path} (expected connect_port above")
    assert [problem.partition(" (")[0] for problem in wrong] == [
        f"spark_conf.spark.a = [1] in {path}",
        f"adaptive = 'perhaps' in {path}",
        f"profile = 'clutser' in {path}",
        f"heap = '4 gigabytes' in {path}",
        "TIDEMARK_AIRFLOW_PORT='many'",
    ]
    assert "'embedded' or 'cluster'" in wrong[2]


@pytest.mark.parametrize(
    ("content", "part"), [(b"heap = 4g", "line 1"), (b'home = "\xff"', "utf-8"), (b"a=1\na=2\n", "line 2")]
)
def test_a_file_that_is_no_toml_is_refused_with_its_path_and_line(write: Write, content: bytes, part: str) -> None:
    path = write("")
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as refusal:
        load_settings()
    assert str(path) in refusal.value.expected
    assert part in refusal.value.found


def test_a_wrong_json_object_of_the_environment_is_a_refusal(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("heep = 1")
    monkeypatch.setenv("TIDEMARK_SPARK_CONF", "{a")
    unknown, wrong = problems_of()
    assert unknown.startswith(f"heep in {path}")
    assert wrong.startswith("TIDEMARK_SPARK_CONF (expected a JSON object")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('token = "hush"', False),
        ('smtp = "smtp://mail.example.org"', False),
        ('metastore_url = "jdbc:postgresql://db/m?user=u&password=hush"', False),
        ('airflow_database_url = "postgresql+psycopg2://u:hush@db/airflow"', False),
        ('java_options = "-Djavax.net.ssl.keyStorePassword=hush"', False),
        ('[spark_conf]\nspark.hadoop.fs.s3a.secret.key = "hush"', False),
        ('metastore_url = "jdbc:postgresql://db/m?user=u"', True),
        ('[spark_conf]\nspark.hadoop.fs.s3a.aws.credentials.provider = "a.Class"', True),
    ],
)
def test_a_secret_in_the_file_is_refused_without_its_text(write: Write, text: str, allowed: bool) -> None:
    path = write(text)
    if allowed:
        load_settings()
        return
    (problem,) = problems_of()
    name = text.partition(" ")[0].removeprefix("[").partition("]")[0]
    assert problem.startswith(f"{name} in {path} (expected no password or key")
    assert f"TIDEMARK_{name.upper()}" in problem
    assert ("in the folder `secrets`" in problem) == (name in IN_SECRET_FILES)
    assert "hush" not in problem


def test_a_wrong_value_that_is_a_secret_is_not_printed(write: Write) -> None:
    write("token = 12345\n[spark_conf]\nspark.hadoop.fs.s3a.secret.key = [12345]")
    problems = problems_of()
    assert len(problems) == 4
    assert "12345" not in str(problems)


def test_a_folder_of_secrets_has_a_file_for_each(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "project" / "secrets"
    folder.mkdir()
    for name in IN_SECRET_FILES:
        (folder / f"tidemark_{name}").write_text(f" the {name}\n")
    (folder / "of_another_program").write_text("x")
    write('secrets = "secrets"')
    settings = load_settings()
    assert all(getattr(settings, name).get_secret_value() == f"the {name}" for name in SECRETS)
    assert settings.metastore_url == "the metastore_url"
    # a child process reads the secrets itself
    assert "the token" not in str(settings.environment())
    assert settings.environment()["TIDEMARK_SECRETS"] == str(folder)


def test_a_folder_of_secrets_that_cannot_be_used_is_refused(write: Write, tmp_path: Path) -> None:
    write('secrets = "secrets"')
    (problem,) = problems_of()
    assert problem.startswith(f"secrets = '{tmp_path}/project/secrets' in ")
    assert "No such file" in problem
    folder = tmp_path / "project" / "secrets"
    folder.mkdir()
    (folder / "tidemark_tls_pasword").write_text("hush")
    (folder / "tidemark_heap").write_text("4g")
    (problem,) = problems_of()
    assert "tidemark_tls_pasword, which is no secret setting; the closest is tls_password" in problem
    assert "tidemark_heap, which is no secret setting" in problem
    assert "hush" not in problem
    shutil.rmtree(folder)
    folder.mkdir()
    (tmp_path / "elsewhere").write_text("hush")
    (folder / "tidemark_token").symlink_to(tmp_path / "elsewhere")
    assert "tidemark_token, which leads out of the folder" in problems_of()[0]
    (folder / "tidemark_token").unlink()
    (folder / "tidemark_token").write_bytes(b"\xff")
    assert "texts that can be read, found 'utf-8'" in problems_of()[0]
    write("secrets = 5")
    assert problems_of()[0].startswith("secrets = 5 in ")


def test_profiles_set_defaults_alone_and_settings_of_spark_are_joined(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('profile = "cluster"\n[spark_conf]\nspark.executor.cores = 4\nspark.a.on = true\n"spark.b" = "of the file"')
    monkeypatch.setenv("TIDEMARK_SPARK_CONF", '{"spark.b": "of the environment"}')
    settings = load_settings()
    assert (settings.profile, settings.shuffle_partitions) == ("cluster", 64)
    assert settings.spark_conf == {
        "spark.executor.cores": "4",
        "spark.a.on": "true",
        "spark.b": "of the environment",
    }
    monkeypatch.setenv("TIDEMARK_PROFILE", "embedded")
    settings = load_settings()
    assert (settings.profile, settings.shuffle_partitions) == ("embedded", 4)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_defaults_of_a_profile_are_right_and_what_it_requires_are_settings(
    settings: Settings, profile: str
) -> None:
    with_profile = load_settings(profile=profile)
    assert {name: getattr(with_profile, name) for name in PROFILES[profile]} == PROFILES[profile]
    assert {*REQUIRED[profile]} <= {*Settings.model_fields}
    assert not {*REQUIRED[profile]} & {*PROFILES[profile]}


def test_values_that_a_cluster_requires_are_named_before_anything_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_PROFILE", "cluster")
    monkeypatch.setenv("TIDEMARK_MASTER", "spark://master.example.org:7077")
    assert run(["up", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["missing"] == ["bind_address", "lake", "landing", "metastore_url", "airflow_database_url"]
    assert run(["up", "--no-airflow", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["missing"] == error["missing"][:-1]
    given = dict.fromkeys(error["missing"], "/srv/x")
    expect_complete(load_settings(**given), airflow=True)
    expect_complete(load_settings(profile="embedded"), airflow=True)


def test_origins_name_the_variable_the_file_and_the_profile(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / "secrets").mkdir()
    secret = tmp_path / "project" / "secrets" / "tidemark_smtp"
    secret.write_text("smtp://mail.example.org")
    path = write('profile = "cluster"\nsecrets = "secrets"\nheap = "4g"\nlake = "x"\n[spark_conf]\nspark.a = "b"')
    monkeypatch.setenv("TIDEMARK_HEAP", "5g")
    origins = read_origins(Settings)
    assert list(origins) == list(Settings.model_fields)
    different = {name: origin for name, origin in origins.items() if origin != "default"}
    assert different == {
        "profile": str(path),
        "secrets": str(path),
        "lake": str(path),
        "heap": "TIDEMARK_HEAP",
        "smtp": str(secret),
        "shuffle_partitions": "profile cluster",
        "spark_conf": str(path),
    }


def test_the_list_of_settings_has_values_and_origins_and_no_password(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write('home = "here"\nmetastore_url = "jdbc:postgresql://db/m"')
    monkeypatch.setenv("TIDEMARK_TOKEN", "hush")
    monkeypatch.setenv("TIDEMARK_AIRFLOW_DATABASE_URL", "postgresql+psycopg2://u:hush@db/airflow")
    monkeypatch.setenv("TIDEMARK_SPARK_CONF", '{"spark.hadoop.fs.s3a.secret.key": "hush", "spark.a": "b"}')
    assert run(["settings"]) == 0
    text = capsys.readouterr().out
    assert "hush" not in text
    assert str(path) in text
    assert run(["settings", "--json"]) == 0
    rows = {row["variable"]: row for row in json.loads(capsys.readouterr().out)}
    assert [*rows] == [f"TIDEMARK_{name.upper()}" for name in Settings.model_fields]
    assert rows["TIDEMARK_HOME"] == {
        "variable": "TIDEMARK_HOME",
        "value": str(path.parent / "here"),
        "origin": str(path),
        "meaning": Settings.model_fields["home"].description,
    }
    assert rows["TIDEMARK_TOKEN"]["value"] == "…"
    assert rows["TIDEMARK_SMTP"]["value"] is None
    assert rows["TIDEMARK_AIRFLOW_DATABASE_URL"]["value"] == "postgresql+psycopg2://…@db/airflow"
    assert rows["TIDEMARK_SPARK_CONF"]["value"] == {"spark.hadoop.fs.s3a.secret.key": "…", "spark.a": "b"}


def test_only_texts_and_mappings_have_secrets_to_hide() -> None:
    assert hide_secrets(5) == 5
    assert hide_secrets({"a": {"b.password": 1}}) == {"a": {"b.password": "…"}}


@pytest.mark.parametrize("of_airflow", [False, True])
def test_a_child_process_has_its_parents_settings_in_any_folder(write: Write, tmp_path: Path, of_airflow: bool) -> None:
    write('profile = "cluster"\nhome = "here"\nheap = "4g"\nsources = "sources"\n[spark_conf]\nspark.a = "b"')
    parent = load_settings()
    other = tmp_path / "other"
    other.mkdir()
    (other / "tidemark.toml").write_text('heap = "7g"\nplugins = "plugins"\nunknown = 1')
    program = "from spark_jobs.config import load_settings; print(load_settings().model_dump_json())"
    variables = airflow_environment(parent) if of_airflow else parent.environment()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=other,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == json.loads(parent.model_dump_json())


def test_a_file_that_others_can_write_counts_only_if_it_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('heap = "4g"')
    path.chmod(0o646)
    with pytest.raises(ConfigurationError, match="not writable by everybody") as refusal:
        load_settings()
    assert refusal.value.next_step.endswith(f"export TIDEMARK_CONFIG={path}")
    monkeypatch.setenv("TIDEMARK_CONFIG", str(path))
    assert load_settings().heap == "4g"


def test_code_without_pydantic_finds_home_and_plugins_of_the_file(write: Write, tmp_path: Path) -> None:
    write('home = "here"\nplugins = "of_team"')
    (tmp_path / "project" / "of_team").mkdir()
    (tmp_path / "project" / "of_team" / "wrong.py").write_text("1 / 0")
    assert len(plugins().problems) == 1
    program = (
        "import sys; from spark_jobs.cli import forward as f; print(f.early_setting('home'), 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "project" / "here"), "False"]


def test_a_changed_file_is_read_again(write: Write) -> None:
    write('heap = "4g"')
    assert load_settings().heap == "4g"
    write('heap = "10g"')
    assert load_settings().heap == "10g"


def test_settings_are_loaded_where_the_working_folder_is_gone(write: Write) -> None:
    Path.cwd().rmdir()
    assert load_settings().heap == "3g"
