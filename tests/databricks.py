"""What a Databricks notebook has that others have not, as far as Databricks' documentation says how it behaves.

Nothing here is Databricks: it tests sbnotebook against the documentation of Databricks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from azure.core.credentials import AccessToken

MAGICS = (
    # https://docs.databricks.com/en/notebooks/notebooks-code.html and the pages that it leads to.
    *("python", "scala", "r", "sql", "md", "sh", "fs", "run", "pip", "uv", "conda", "skip", "tensorboard"),
    *("restart_python", "set_cell_max_output_size_in_mb", "profile", "oprofile", "environment"),
)
"""The magics that its documentation names."""


class JavaError(Exception):
    """Stands for the error that Py4J makes of one in Java, which is not a subclass of Python's own."""


@dataclass
class Secrets:
    """``dbutils.secrets``: a missing or forbidden secret is a Java error."""

    kept: Mapping[tuple[str, str], str]

    def get(self, scope: str, key: str) -> str:
        if (scope, key) not in self.kept:
            raise JavaError(
                "An error occurred while calling o401.get.\n: java.lang.IllegalArgumentException: "
                f"Secret does not exist with scope: {scope} and key: {key}\n\tat com.databricks.…"
            )
        return self.kept[scope, key]


@dataclass
class Widgets:
    """``dbutils.widgets``: the fields above a notebook; a job gives its parameters to those of the same name."""

    given: Mapping[str, str] = field(default_factory=dict[str, str])
    values: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, name: str, default: str, label: str = "") -> None:  # noqa: ARG002
        self.values[name] = self.given.get(name, default)

    def dropdown(self, name: str, default: str, choices: Sequence[str], label: str = "") -> None:  # noqa: ARG002
        assert default in choices
        self.values[name] = self.given.get(name, default)
        assert self.values[name] in choices

    def get(self, name: str) -> str:
        return self.values[name]


class Provider:
    """What getServiceCredentialsProvider returns on Azure: a synchronous token credential."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(f"token of {self.name} for {scopes[0]}", int(time.time()) + 3600)


@dataclass
class Credentials:
    """``dbutils.credentials`` of a notebook: its user has the privilege ACCESS on these.

    https://learn.microsoft.com/en-us/azure/databricks/connect/unity-catalog/cloud-services/use-service-credentials
    """

    granted: Sequence[str] = ()

    def getServiceCredentialsProvider(self, name: str) -> Provider:  # noqa: N802 - Databricks' name
        if name not in self.granted:
            raise JavaError(f"PERMISSION_DENIED: no ACCESS on Credential '{name}'.\n\tat com.databricks.…")
        return Provider(name)


class TaskCredentials(ModuleType):
    """``databricks.service_credentials``, for code that Spark runs in its workers; it raises where no task runs."""

    def __init__(self, granted: Sequence[str] = (), *, is_task: bool = True) -> None:
        super().__init__("databricks.service_credentials")
        self._credentials = Credentials(granted)
        self._is_task = is_task

    def getServiceCredentialsProvider(self, name: str) -> Provider:  # noqa: N802
        if not self._is_task:
            raise RuntimeError("Service credentials are only available in a task.")
        return self._credentials.getServiceCredentialsProvider(name)


class Library:
    """``dbutils.library``: the process is another one after this, and what the notebook had is gone."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self._variables = variables

    def restartPython(self) -> None:  # noqa: N802 - Databricks' name
        kept = {"dbutils", "spark", "In", "Out", "get_ipython", "exit", "quit", "open"}
        for name in [name for name in self._variables if name not in kept and not name.startswith("_")]:
            del self._variables[name]


class DbUtils:
    """``dbutils``, which every notebook has as a variable."""

    def __init__(
        self, secrets: Mapping[tuple[str, str], str], *, variables: dict[str, Any] | None = None, **parameters: str
    ) -> None:
        self.secrets = Secrets(secrets)
        self.credentials = Credentials()
        self.widgets = Widgets(parameters)
        self.library = Library({} if variables is None else variables)


def cells(source: str) -> list[str]:
    """Return the cells of a notebook in Databricks' source format.

    https://docs.databricks.com/en/notebooks/notebook-export-import.html: the first line marks the format, a separate
    line divides two cells, and cells in other languages have ``# MAGIC`` before each line.
    """
    first, _, rest = source.partition("\n")
    assert first == "# Databricks notebook source"
    parts = re.split(r"^# COMMAND -{10}$", rest, flags=re.MULTILINE)
    return [re.sub(r"^# MAGIC ?", "", part.strip("\n"), flags=re.MULTILINE) for part in parts]
