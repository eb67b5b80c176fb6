"""Keeps tests and notebooks away from what the person who runs them has set up.

It is set in the environment, so every kernel, Spark worker and other process of a test inherits it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# A test must never reach a real namespace.
_CONNECTIONS = ("SBNOTEBOOK_CONNECTION", "SERVICEBUS_CONNECTION_STRING")
# The user's own emulator, journal, archive, notebook settings and history.
_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")


def pytest_configure(config: pytest.Config) -> None:
    """Give this run folders of its own, and no connection."""
    folder = tempfile.TemporaryDirectory(prefix="sbnotebook-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    for name in _CONNECTIONS:
        os.environ.pop(name, None)
    for name in _FOLDERS:
        os.environ[name] = str(Path(folder.name, name.lower()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
