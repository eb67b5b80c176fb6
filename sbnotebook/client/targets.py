"""Resolve the target that a user names to a connection."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from typing import Any, Final

from sbnotebook.client.scrubbing import secrets_of
from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement.connecting.connection import Connection

__all__ = [
    "EMULATOR",
    "ENVIRONMENT_VARIABLES",
    "NamespaceTarget",
    "Target",
    "notebook_variable",
    "refuse_secret",
    "resolve",
]

EMULATOR: Final = "emulator"
ENVIRONMENT_VARIABLES: Final = ("SBNOTEBOOK_CONNECTION", "SERVICEBUS_CONNECTION_STRING")
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """A connection, and how its target was found.

    Args:
        connection: the connection.
        found_by: how it was found, in words to show; never a secret.
    """

    connection: Connection
    found_by: str


@dataclass(frozen=True, slots=True)
class NamespaceTarget:
    """A target that can be pickled, and is resolved in each process that connects.

    Args:
        text: a connection string, a host name, or ``emulator``.
        machine: the machine that made this: Spark's driver.
    """

    text: str = field(repr=False)
    machine: str = field(default_factory=socket.gethostname)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the parts that must not be shown."""
        return secrets_of(self.text)

    def connection(self) -> Connection:
        """Make a connection for this process.

        Raises:
            ConfigurationError: the target cannot be used here, such as the driver's emulator on another machine, where
                a new and empty one would be started.
            EmulatorStartError: the emulator could not be started.
        """
        if self.text.lower() == EMULATOR and self.machine != socket.gethostname():
            raise ConfigurationError(
                "The emulator runs on the machine of Spark's driver only, and a worker on another machine needs it: "
                "use a local Spark, or a namespace in Azure."
            )
        return resolve(self.text).connection


def refuse_secret(target: str | None) -> None:
    """Check that a target from the command line is no connection string.

    Raises:
        ConfigurationError: it is one.
    """
    if target is not None and "endpoint=" in target.lower():
        raise ConfigurationError(
            "A connection string on the command line is seen by everybody on this machine, and kept in the shell's "
            "history: put it into an environment variable and give env:VARIABLE."
        )


def resolve(target: str | None = None, credential: Any = None) -> Target:
    """Resolve a target to a connection.

    Args:
        target: ``emulator``, ``NAMESPACE.servicebus.windows.net``, ``env:VARIABLE``, ``secret:SCOPE/KEY`` (Databricks)
            or a connection string. None takes the first of the environment variables SBNOTEBOOK_CONNECTION and
            SERVICEBUS_CONNECTION_STRING that is set, and the emulator when none is.
        credential: a token credential for a namespace's host name, azure.identity's DefaultAzureCredential when None.

    Raises:
        ConfigurationError: the target is none of these, or a variable or secret is missing.
        EmulatorStartError: the emulator could not be started.
    """
    if target is None:
        return _default(credential)
    text = target.strip()
    # From the most to the least specific form; the error never repeats the text, which may be a secret.
    if text.lower() == EMULATOR:
        return Target(_emulator(), "the emulator on this machine")
    if "endpoint=" in text.lower():
        return Target(Connection(text), "a connection string")
    if text.startswith("env:"):
        return _from_environment(text.removeprefix("env:"), credential)
    if text.startswith("secret:"):
        return Target(Connection(_databricks_secret(text.removeprefix("secret:"))), "a Databricks secret")
    if _HOST.fullmatch(text):
        return Target(Connection.with_credential(text, credential), "a credential")
    raise ConfigurationError(
        "The target is emulator, NAMESPACE.servicebus.windows.net, env:VARIABLE, secret:SCOPE/KEY "
        "or, in Python only, a connection string."
    )


def _default(credential: Any) -> Target:
    for variable in ENVIRONMENT_VARIABLES:
        if os.environ.get(variable):
            return _from_environment(variable, credential)
    return Target(_emulator(), f"the emulator on this machine, because {' and '.join(ENVIRONMENT_VARIABLES)} are unset")


def _from_environment(variable: str, credential: Any) -> Target:
    if not variable.isidentifier():  # not shown: it may be a secret that was typed in the wrong place
        raise ConfigurationError("An environment variable is written env:VARIABLE, by its name.")
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigurationError(f"The environment variable {variable[:80]} is not set.")
    if value.startswith("env:"):
        raise ConfigurationError(f"The environment variable {variable[:80]} names another variable.")
    return Target(resolve(value, credential).connection, f"the environment variable {variable}")


def _emulator() -> Connection:
    from sbnotebook.emulator.process import ensure_running

    return Connection(ensure_running())


def _databricks_secret(name: str) -> str:
    scope, slash, key = name.partition("/")
    if not (scope and slash and key):
        raise ConfigurationError("A Databricks secret is written secret:SCOPE/KEY.")
    dbutils = notebook_variable("dbutils")
    if dbutils is None:
        raise ConfigurationError("There is no dbutils here: secret:SCOPE/KEY works in a Databricks notebook only.")
    try:
        return str(dbutils.secrets.get(scope, key))
    except Exception as error:  # whatever the kind of compute makes of an error in Java
        raise ConfigurationError(
            "Databricks gave no secret of this name: dbutils.secrets.list(SCOPE) shows those that you may read."
        ) from error


def notebook_variable(name: str) -> Any:
    """Return the value of a variable of the notebook that this runs in; None where there is none."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell.user_ns.get(name) if shell is not None else None
