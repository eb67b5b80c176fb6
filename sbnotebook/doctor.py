"""Check the requirements of sbnotebook on this machine, and say how to install missing parts.

It needs the standard library only, because it must run, and be right, where the rest is not installed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sbnotebook.errors import how_to_install

_OLDEST_PYTHON: Final = (3, 11)
_OLDEST_JAVA: Final = 17
_OLDEST_PYSPARK: Final = (4, 2)
_AMQPS_PORT: Final = 5671
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")
_NUMBER: Final = re.compile(r"\d+")
_REACH_SECONDS: Final = 5.0


class State(Enum):
    """The state of one requirement."""

    GOOD = "good"
    OPTIONAL = "not there, not always needed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report, which has no secret; it has no remedy when its state is good."""

    subject: str
    state: State
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Examine Python, the packages, PySpark, Java, the widgets and the connection."""
    spark = _pyspark()
    return [
        _python(),
        _packages(),
        spark,
        _java(os.environ.get("JAVA_HOME"), needed=spark.state is State.GOOD),
        _widgets(),
        _connection(),
    ]


def java_version(home: str | None) -> int:
    """Return the major version of the Java that Spark would start, given JAVA_HOME or by the PATH; 0 for none."""
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    # Java 8 and older call themselves 1.8.
    found = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else 0


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _OLDEST_PYTHON:
        return Finding("Python", State.GOOD, found)
    return Finding("Python", State.MISSING, found, "Install Python 3.11 or newer.")


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _packages() -> Finding:
    try:
        needed = [_NOT_IN_NAMES.split(line, maxsplit=1)[0] for line in requires("sbnotebook") or [] if ";" not in line]
        own = version("sbnotebook")
    except PackageNotFoundError:
        return Finding("sbnotebook", State.MISSING, "not installed", _sentence(how_to_install()))
    missing = [name for name in needed if _installed(name) is None]
    if missing:
        return Finding("sbnotebook", State.MISSING, f"without {', '.join(missing)}", _sentence(how_to_install()))
    return Finding("sbnotebook", State.GOOD, f"{own} with its {len(needed)} packages")


def _pyspark() -> Finding:
    found = _installed("pyspark")
    remedy = f"For Spark (Databricks brings its own): {how_to_install('spark')}."
    if found is None:
        return Finding("PySpark", State.OPTIONAL, "not installed", remedy)
    if tuple(map(int, _NUMBER.findall(found)[:2])) < _OLDEST_PYSPARK:
        return Finding("PySpark", State.MISSING, f"{found} is too old", remedy)
    return Finding("PySpark", State.GOOD, found)


def _java(home: str | None, *, needed: bool) -> Finding:
    found = java_version(home)
    if found >= _OLDEST_JAVA:
        return Finding("Java", State.GOOD, str(found))
    remedy = f"For Spark: install Java {_OLDEST_JAVA} or newer"
    remedy += f"; JAVA_HOME is {home}." if home else " (Debian and Ubuntu: openjdk-17-jre-headless)."
    return Finding("Java", State.MISSING if needed else State.OPTIONAL, str(found or "not found"), remedy)


def _widgets() -> Finding:
    kernel, lab, front_end = (_installed(name) for name in ("ipywidgets", "jupyterlab", "jupyterlab_widgets"))
    if kernel is None:
        return Finding("Widgets", State.MISSING, "ipywidgets is not installed", _sentence(how_to_install()))
    if lab is None:
        remedy = f"For JupyterLab (VS Code and Databricks bring their own): {how_to_install('lab')}."
        return Finding("Widgets", State.OPTIONAL, f"ipywidgets {kernel}, no JupyterLab", remedy)
    if front_end is None:
        return Finding("Widgets", State.MISSING, "JupyterLab cannot show them", "pip install jupyterlab_widgets")
    return Finding("Widgets", State.GOOD, f"ipywidgets {kernel}, JupyterLab {lab}")


def _connection() -> Finding:
    """Resolve the default target as ``connect()`` does, which may start the emulator, and try to reach it."""
    try:
        from sbnotebook.client.targets import resolve
        from sbnotebook.errors import SbNotebookError
    except ImportError:
        return Finding("Connection", State.MISSING, "not looked at", "Install the missing packages first.")
    try:
        target = resolve()
    except SbNotebookError as error:
        remedy = "Unset SBNOTEBOOK_CONNECTION and SERVICEBUS_CONNECTION_STRING for the emulator, or mend them."
        return Finding("Connection", State.MISSING, str(error), remedy)
    place = urlsplit(f"//{target.connection.host}")
    return _reach(place.hostname or "", place.port or _AMQPS_PORT, target.found_by)


def _reach(host: str, port: int, found_by: str) -> Finding:
    try:
        socket.create_connection((host, port), timeout=_REACH_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        remedy = f"Check the name, and that a firewall lets port {port} through."
        return Finding("Connection", State.MISSING, f"{host}:{port} cannot be reached: {reason}", remedy)
    return Finding("Connection", State.GOOD, f"{host}:{port} answers ({found_by})")


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
