"""The way on that README names after a failure: the same command; `up`, and again; `doctor --repair`, and again."""

from __future__ import annotations

from tests.chaos.account import Fault
from tests.chaos.site import Site

STEPS = (("up", "--no-airflow"), ("doctor", "--repair"))


def follow(site: Site, fault: Fault, command: tuple[str, ...]) -> None:
    """Do a command until it succeeds, with the steps between; the fault gets what was needed, or what is wrong."""
    again = site.do(*command)
    steps = ["again"]
    for step in STEPS:
        if again.ok:
            break
        fault.ended += f", {again.error}"
        site.do(*step)
        steps.append(step[0])
        again = site.do(*command)
    if not again.ok:
        fault.problems.append(f"`{' '.join(command)}` still fails after {', '.join(steps)}:\n{again.text[-2000:]}")
    fault.way = (*fault.way, *steps) if fault.way else tuple(steps)
