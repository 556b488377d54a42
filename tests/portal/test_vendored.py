"""The style sheet, charts and editor that others wrote: exact versions, unchanged files, licences, nothing to fetch."""

from __future__ import annotations

import hashlib
import json
import re

from spark_jobs.portal.assets import ASSETS, SQL_SCRIPT, VENDOR

LOCK = json.loads((VENDOR / "package-lock.json").read_text())["packages"]
"""The packages that npm installs, with those that only bundle the others."""


def test_the_files_are_those_that_npm_gave() -> None:
    sums = dict(line.split("  ")[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    files = [path for path in VENDOR.rglob("*") if path.is_file() and path.suffix in (".css", ".js", ".txt", ".md")]
    assert {str(path.relative_to(VENDOR)) for path in files} == {*sums}
    for path in files:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[str(path.relative_to(VENDOR))], path


def test_versions_are_exact_locked_and_in_the_files() -> None:
    package = json.loads((VENDOR / "package.json").read_text())
    wanted = package["dependencies"]
    for name, version in (wanted | package["devDependencies"]).items():
        locked = LOCK[f"node_modules/{name}"]
        assert locked["version"] == version and locked["integrity"].startswith("sha512-")
    assert f"Pico CSS ✨ v{wanted['@picocss/pico']}" in ASSETS["vendor/pico.min.css"].read_text()
    assert f'version="{wanted["echarts"]}"' in ASSETS["vendor/echarts.min.js"].read_text()


def test_each_package_has_its_licence_beside_the_pages() -> None:
    packages = {name.rpartition("/")[2] for name, locked in LOCK.items() if name and not locked.get("dev")}
    licences = " ".join(name for name in ASSETS if "/licences/" in name)
    assert [name for name in packages if name not in licences] == []


def test_no_file_names_an_address_to_fetch_from() -> None:
    for name, path in ASSETS.items():
        if path.suffix in (".css", ".js"):
            text = path.read_text()
            if name == SQL_SCRIPT:
                # it asks beside the page alone
                text = text.replace("await fetch(`sql/${action}`", "")
            assert not re.search(r"@import|url\(['\"]?http|\bfetch\(|XMLHttpRequest|importScripts|\beval\(", text), name
    assert '"resolved"' not in (VENDOR / "package-lock.json").read_text()
