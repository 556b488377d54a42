"""The page of settings: the environment variable and the file's key of each of `spark_jobs.config.Settings`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pydantic.fields import FieldInfo

from docs.generate.markdown import anchored_code, as_sentence, code, prose, section, table, whole_page
from spark_jobs.config import CHECKOUT, ENVIRONMENT_PREFIX, Settings
from spark_jobs.settings.cluster import ClusterSettings
from spark_jobs.settings.sources import IN_SECRET_FILES, PROFILES, REQUIRED, SECRETS, secret_file

_LINE = re.compile(r"^    (?:# --- (?P<group>.+?) -+|(?P<field>[a-z_]+): )", re.MULTILINE)
_INTRODUCTION = """
Settings come from a file, `tidemark.toml`, and from environment variables. `tidemark settings` lists each setting with
its value, its origin and its meaning, without passwords. Settings that can't be used are refused before anything runs,
all at once, with [`configuration`](errors.md#configuration). Paths without a leading `/` in the column of defaults are
below the folder of the checkout; for an installed package, below the folder of the settings file or the working folder.
"""
_FILE = """
```toml title="tidemark.toml"
home = ".tidemark"
sources = "sources"
heap = "4g"

[spark_conf]
spark.executor.memory = "8g"
```

A command reads the first `tidemark.toml` in the working folder and its parents, and no other one. `TIDEMARK_CONFIG`
names another file; if it is empty, no file is read. The key of a setting is the name of its variable without
`TIDEMARK_`, in small letters. Relative paths are below the folder of the file, and in a variable below the working
folder. `spark_conf` is the only table, so it comes last.

If several places have a setting, the first of these counts:

1. an option of the command, where there is one
2. the environment variable
3. `tidemark.toml`
4. the folder of secrets
5. the profile
6. the default

The entries of `spark_conf` are those of all places together.

`tidemark up` gives the server, Airflow and their processes the settings that it was called with. After a change of the
file, call it again. Somebody else's file, or one that everybody may write, is read only if `TIDEMARK_CONFIG` names it,
since settings name code that runs.
"""
_SECRETS = """
Passwords and keys are refused in `tidemark.toml`, also within URLs: repositories and backups have such a file. Set the
variable, or name a folder of secrets with `secrets`, as Docker and Kubernetes mount it. Its file
`tidemark_tls_password` has the value of `TIDEMARK_TLS_PASSWORD`. The folder may have these files: {names}. It may also
have the keys of S3, in files such as `aws_access_key_id`, which count where the variable is not set. Tidemark does not
read files with other beginnings.
"""
_PROFILES = """
`profile = "cluster"` has defaults for a [Spark cluster](../howto/cluster.md) with a bucket and PostgreSQL. A profile
sets defaults alone. `tidemark up` names the required settings that are missing.
"""


def page() -> str:
    """The page, with a table for each group of settings."""
    names = ", ".join(code(secret_file(Path(), name).name) for name in IN_SECRET_FILES)
    return whole_page(
        "Settings",
        _INTRODUCTION.strip(),
        section(2, "The settings file", _FILE.strip()),
        section(2, "Secrets", _SECRETS.strip().format(names=names)),
        section(2, "Profiles", _PROFILES.strip(), _profiles()),
        *(_section(name, knobs) for name, knobs in groups().items()),
    )


def groups() -> dict[str, list[str]]:
    """The knobs of each group, as the comments in the classes of settings group them."""
    grouped: dict[str, list[str]] = {}
    text = "".join(inspect.getsource(settings) for settings in (Settings, ClusterSettings))
    for line in _LINE.finditer(text):
        if line["group"]:
            grouped[line["group"]] = []
        elif line["field"] in Settings.model_fields:
            list(grouped.values())[-1].append(line["field"])
    return grouped


def variable(knob: str) -> str:
    """The environment variable of a knob."""
    return f"{ENVIRONMENT_PREFIX}{knob.upper()}"


def _section(group: str, knobs: list[str]) -> str:
    rows = [_row(knob, Settings.model_fields[knob]) for knob in knobs]
    return section(2, prose(group[:1].upper() + group[1:]), table(["variable", "key", "default", "meaning"], rows))


def _profiles() -> str:
    """The table of profiles: the settings of which one of them has a default of its own, or requires a value."""
    names = [name for name in Settings.model_fields if any(name in [*PROFILES[p], *REQUIRED[p]] for p in PROFILES)]
    rows = [[code(name), *(_of_profile(profile, name) for profile in PROFILES)] for name in names]
    return table(["setting", *map(code, PROFILES)], rows)


def _of_profile(profile: str, name: str) -> str:
    if name in REQUIRED[profile]:
        return "required"
    value = PROFILES[profile].get(name)
    if isinstance(value, dict):
        return ", ".join(code(f'{key} = "{entry}"') for key, entry in value.items())
    return _default(Settings.model_fields[name]) if value is None else code(str(value))


def _row(knob: str, field: FieldInfo) -> list[str]:
    secret = " It is a secret: no list of settings prints it." if knob in SECRETS else ""
    meaning = as_sentence(prose(field.description or "")) + secret
    key = "not in the file" if knob in SECRETS else code(knob)
    return [anchored_code(variable(knob), variable(knob).lower()), key, _default(field), meaning]


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None and field.default_factory_takes_validated_data:
        return code(str(field.get_default(call_default_factory=True, validated_data={"home": Path("$TIDEMARK_HOME")})))
    value = field.get_default(call_default_factory=True)
    if field.default_factory is not None and not isinstance(value, Path):
        return "depends on the machine"
    if value is None or value == "":
        return "not set"
    if isinstance(value, Path) and value.is_relative_to(CHECKOUT):
        return code(value.relative_to(CHECKOUT).as_posix())
    return code(str(value).lower() if isinstance(value, bool) else str(value))
