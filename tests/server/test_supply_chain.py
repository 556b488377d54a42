"""The bill of materials names every pinned jar, and an audit that could not look is no clean one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.jvm.jars import DELTA, KAFKA, LINEAGE, POSTGRESQL, S3
from spark_jobs.server.audit import findings, verdict
from spark_jobs.server.sbom import with_jars


def test_the_bill_has_the_packages_and_every_pinned_jar() -> None:
    package = {"type": "library", "name": "pyspark", "version": "4.2.0"}
    bill = with_jars({"bomFormat": "CycloneDX", "components": [package]})
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["components"][0] == package
    jars = bill["components"][1:]
    assert [(jar["name"], jar["version"], jar["hashes"][0]["content"]) for jar in jars] == [
        (jar.name, jar.revision, jar.sha256)
        for jars in (DELTA, S3, POSTGRESQL, KAFKA, LINEAGE)
        for jar in jars.pinned_jars()
    ]
    assert len({jar["purl"] for jar in jars}) == len(jars) > 5


def report(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": [{"name": f"p{n}", "version": "1.0", **p} for n, p in enumerate(packages)], "fixes": []}


def test_findings_with_a_fix_are_told_from_those_without() -> None:
    known = {"id": "PYSEC-1", "aliases": ["CVE-1"], "description": ""}
    fixable, others = findings(
        report({"vulns": []}, {"vulns": [{**known, "fix_versions": ["1.1"]}, {**known, "fix_versions": []}]})
    )
    assert fixable == ["p1 1.0: PYSEC-1, CVE-1; fixed in 1.1"]
    assert others == ["p1 1.0: PYSEC-1, CVE-1; no fix yet"]
    assert findings(report({"vulns": []})) == ([], [])


def test_an_audit_that_could_not_look_is_no_clean_one() -> None:
    with pytest.raises(ValueError, match="1 skipped: p1"):
        findings(report({"vulns": []}, {"name": "p1", "skip_reason": "not found"}))


def test_a_build_passes_without_findings_that_have_a_fix_and_where_nothing_is_known_only_if_it_asks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "findings.json"
    for content in (None, "", json.dumps(report({"name": "p1", "skip_reason": "not found"}))):
        if content is not None:
            path.write_text(content)
        text, passes = verdict(path, if_reachable=False)
        assert "nothing is known" in text
        assert not passes
        assert verdict(path, if_reachable=True) == (text, True)
    known = {"id": "PYSEC-1", "aliases": [], "description": ""}
    path.write_text(json.dumps(report({"vulns": [{**known, "fix_versions": []}]})))
    assert verdict(path, if_reachable=True) == ("p0 1.0: PYSEC-1; no fix yet", True)
    path.write_text(json.dumps(report({"vulns": [{**known, "fix_versions": ["1.1"]}]})))
    text, passes = verdict(path, if_reachable=True)
    assert "1 findings have a fix" in text
    assert not passes
