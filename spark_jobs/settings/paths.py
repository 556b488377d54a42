"""Characters of paths that Spark, Hadoop or Java would misread."""

from __future__ import annotations

from unicodedata import category

_IN_DERBYS_URL = "the URL of the catalog's database, Derby"
_IN_VARIABLES = "settings of Spark and Hadoop, where it begins a variable"
_IN_OPTIONS = "Java's options in Spark's settings"
_MISREAD: dict[str, dict[str, str]] = {
    "home": {
        '"': _IN_OPTIONS,
        "\\": _IN_OPTIONS,
        ",": "spark.local.dir, a list of folders",
        ";": _IN_DERBYS_URL,
        ":": _IN_DERBYS_URL,
        "${": _IN_VARIABLES,
    },
    "lake": {"\\": "Spark's properties", "${": _IN_VARIABLES},
    "jars": {
        '"': _IN_OPTIONS,
        "\\": _IN_OPTIONS,
        ":": "Java's class path",
        "!/": "addresses of what is in a jar",
        "${": _IN_VARIABLES,
    },
}
"""Setting -> text that its path must not contain -> the reader that would misinterpret this text."""


def expect_readable_by_spark(name: str, path: str) -> None:
    """Raise ValueError if the path of the setting `name` has a text that would be misread."""
    controls = {text: "files with one setting a line" for text in path if category(text) == "Cc"}
    for text, reader in {**controls, **_MISREAD[name]}.items():
        if text in f"{path}/":
            raise ValueError(f"has a {text!r}, which would break {reader}: take another folder, or rename it")
