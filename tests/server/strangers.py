"""Another user of the machine, who sends requests to Airflow: raw ones, as no browser would, and with forged logins."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jwt

from tests.server.squatters import AS_NOBODY

_PROGRAM = """
import http.client, json, os, sys
os.chdir("/")
connection = None
for line in sys.stdin:
    asked = json.loads(line)
    for attempt in range(2):
        try:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
            connection.putrequest(asked["method"], asked["path"], skip_host="Host" in asked["headers"])
            body = asked["body"].encode()
            for name, value in {**asked["headers"], "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            answer = [response.status, dict(response.getheaders()), response.read().decode(errors="replace")]
            if response.will_close:
                connection = None
            break
        except OSError:
            connection = None
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Question:
    """A request, byte by byte: nothing of the path is resolved before it is sent."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    question: Question
    status: int
    headers: dict[str, str]
    text: str


def ask_as_nobody(port: int, questions: Sequence[Question]) -> list[Reply]:
    """The answers to requests that a process of `nobody` sends to a port of this machine."""
    other_user = AS_NOBODY if os.geteuid() == 0 else ()
    program = subprocess.run(
        [*other_user, sys.executable, "-c", _PROGRAM, str(port)],
        input="".join(f"{json.dumps(asdict(question))}\n" for question in questions),
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        check=True,
    )
    answers = [json.loads(line) for line in program.stdout.splitlines()]
    return [Reply(question, *answer) for question, answer in zip(questions, answers, strict=True)]


def forged_logins() -> dict[str, dict[str, str]]:
    """Headers of who has no login, by what they try."""
    claims = {"sub": "admin", "role": "admin", "aud": "apache-airflow", "iss": "airflow", "exp": 4_000_000_000}
    claims |= {"iat": 1_700_000_000, "nbf": 1_700_000_000}
    unsigned = jwt.encode(claims, "", algorithm="none")
    of_another_key = jwt.encode(claims, "x" * 64, algorithm="HS512")
    basic = base64.b64encode(b"admin:admin").decode()
    return {
        "no login": {},
        "a token without a signature": {"Authorization": f"Bearer {unsigned}"},
        "a token of another key": {"Authorization": f"Bearer {of_another_key}"},
        "the same in the cookie": {"Cookie": f"_token={of_another_key}"},
        "a usual password": {"Authorization": f"Basic {basic}"},
        "a name that a proxy would add": {
            "X-Forwarded-User": "admin",
            "Remote-User": "admin",
            "X-Forwarded-For": "::1",
        },
        "another host": {"Host": "lake.example.org"},
    }


def routes() -> Iterator[tuple[str, str]]:
    """Method and path of each route of Airflow's API, of its pages' own and of its tasks', with names in the gaps."""
    from airflow.api_fastapi.core_api.routes.public import public_router
    from airflow.api_fastapi.core_api.routes.ui import ui_router
    from airflow.api_fastapi.execution_api.routes import execution_api_router

    for prefix, router in (("", public_router), ("", ui_router), ("/execution", execution_api_router)):
        for method, path in _routes_of(router):
            yield method, prefix + path


def _routes_of(router: Any) -> Iterable[tuple[str, str]]:
    for route in router.routes:
        for method in sorted(getattr(route, "methods", None) or ()):
            yield method, re.sub(r"{\w+(:path)?}", "probe", route.path)
