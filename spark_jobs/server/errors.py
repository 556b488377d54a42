"""The errors of the lake server and of the programs around it."""

from __future__ import annotations

import re

from spark_jobs.errors import ConfigurationError, TidemarkError

END_OF_SPARK = re.compile(r"stopped SparkContext|SparkContext (was|has been) shut ?down")
"""The lake server's messages, while it ends, for work that is under way or requested."""


class LakeBusy(TidemarkError):
    """Another process has the lake's writer lock. Facts: `pid`, `command`, `since`, `lock_file`."""

    code = "lake_busy"


class ServerUnreachable(TidemarkError):
    """The lake server does not answer, or refuses this process. Facts: `address`."""

    code = "server_unreachable"


class ForeignListener(TidemarkError):
    """Another user's process listens where a secret was about to be sent. Facts: `address`, `user` (None: unknown)."""

    code = "foreign_listener"


class CommandServerGone(TidemarkError):
    """The command server ended while it ran a command, and so the command ended, too."""

    code = "command_server_gone"


class MasterUnreachable(TidemarkError):
    """No standalone master of Spark accepts a connection. Facts: `master`."""

    code = "master_unreachable"


class PortTaken(TidemarkError):
    """A port that a part needs is in use. Facts: `port`, `knob`, `pid`, `command` (the latter two None if unknown)."""

    code = "port_taken"


class StartFailed(TidemarkError):
    """A part did not become healthy. Facts: `part`, `log_file`."""

    code = "start_failed"


class LoginMissing(ConfigurationError):
    """The file of logins has no user with a password of the role that is needed."""

    code = "login_missing"


class PlaintextRefused(ConfigurationError):
    """Passwords and rows would go over a network without TLS."""

    code = "plaintext_refused"
