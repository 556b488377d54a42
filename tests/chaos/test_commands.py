"""Each command that is no run of a day, under each fault: the way on leads to what the undisturbed command gives."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.chaos.campaign import seed_of_environment
from tests.chaos.commands import COMMANDS, FAULTS, Prepared, prepared_home

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """One home for all; in the end the table of faults is printed."""
    with prepared_home(tmp_path_factory.mktemp("commands"), seed_of_environment()) as home:
        yield home
        print(home.account)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_command_that_is_struck_gives_what_it_gives_undisturbed(prepared: Prepared, name: str, kind: str) -> None:
    if kind == "full disk" and not prepared.site.disk.mounted:
        pytest.skip("this user may not mount a disk that can be made full")
    if kind.startswith("clock") and prepared.clock is None:
        pytest.skip("there is no gcc, which compiles the library that moves clocks")
    seed = prepared.account.seed
    print(f"seed {seed}")
    fault = prepared.strike(COMMANDS[name], kind, random.Random(f"{seed} {name} {kind}"))
    print(fault.line, *fault.problems, sep="\n")
    assert fault.problems == []
