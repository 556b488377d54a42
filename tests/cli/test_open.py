"""`tidemark open` without Airflow: the link that it prints opens the pages, and Ctrl-C ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from spark_jobs.config import Settings
from tests.installations import TIDEMARK
from tests.jobs.harness import write_source

pytestmark = pytest.mark.slow


def test_the_printed_link_opens_the_pages_until_ctrl_c(tmp_path: Path) -> None:
    settings = write_source(Settings(home=tmp_path))
    Path(settings.lake).mkdir(parents=True)
    environment = {**os.environ, **settings.environment(), "TIDEMARK_SOURCES": str(settings.sources)}
    command = [str(TIDEMARK), "open", "--no-browser", "--json"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as opened:
        assert opened.stdout is not None
        printed = ""
        while not printed.rstrip().endswith("}"):
            line = opened.stdout.readline()
            assert line, "it ended"
            printed += line
        link = json.loads(printed)["link"]
        with httpx.Client(trust_env=False) as client:
            assert client.get(link).status_code == 200
            assert "meters" in client.get(json.loads(printed)["page"]).text
        opened.send_signal(signal.SIGINT)
        _, wrong = opened.communicate(timeout=60)
    assert (opened.returncode, wrong) == (0, "")
    assert not (tmp_path / "open.html").exists(), "no browser was wanted"


def test_without_a_lake_it_says_what_to_do(tmp_path: Path) -> None:
    settings = write_source(Settings(home=tmp_path))
    environment = {**os.environ, **settings.environment(), "TIDEMARK_SOURCES": str(settings.sources)}
    done = subprocess.run(
        [TIDEMARK, "open", "--no-browser"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "a lake with tables" in done.stderr and "tidemark run SOURCE" in done.stderr
