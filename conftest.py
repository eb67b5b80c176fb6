"""Keeps tests and notebooks away from what the person who runs them has set up, and deals them out to processes.

What they are kept away from is set in the environment, so every kernel, Spark worker and other process of a test
inherits it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chances import IS_THOROUGH, SEED

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# What addopts in pyproject.toml selects.
_PLAIN = "not thorough"
# A test must never reach a real namespace.
_CONNECTIONS = ("SBNOTEBOOK_CONNECTION", "SERVICEBUS_CONNECTION_STRING")
# The user's own emulator, journal, archive, notebook settings and history.
_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")

# One JupyterLab and one Chromium, one Spark, and one cluster.
_SHARED = ("tests/browser/", "tests/spark/", "tests/cluster/")
# Those with a Spark of their own are apart: more than two cores bear would start at once.
_LONG = (
    *_SHARED,
    "tests/house/test_docs.py",
    "tests/conformance/",
    "tests/emulator/test_store_crash.py",
    "tests/settlement/actions/test_undo_crash.py",
    "tests/settlement/actions/test_resubmit_crash.py",
    "notebooks/",
    "tests/spark/test_source_secrets.py",
    "tests/demo/test_job.py",
)
_LAST = (0, len(_LONG))
# Dealt out last, test by test, so that all processes end at the same time.
_SINGLY = (
    "tests/settlement/actions/test_pick.py",
    "tests/probe/test_run.py",
    "tests/settlement/processing/test_process_sessions.py",
    "tests/settlement/test_engine_disk.py",
)
# Triage, Spark, and a night on call.
_TUTORIALS = ("notebooks/02", "notebooks/05", "notebooks/11")
# What a file's tests name if they use the Spark of their folder.
_SPARK = re.compile("SparkSession|DataFrame")
_ROOT = Path(__file__).parent
_NICE = 5
"""A process of it gets a third of the processor time of another, while both want it."""
# Quick to start and light on two cores, where nothing runs long enough to be worth optimising.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give this run folders of its own, no connection, and if it is thorough, all tests and other random choices."""
    if IS_THOROUGH:
        config.option.hypothesis_seed = config.option.hypothesis_seed or str(SEED)
        config.option.markexpr = "" if config.option.markexpr == _PLAIN else config.option.markexpr
    folder = tempfile.TemporaryDirectory(prefix="sbnotebook-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    for name in _CONNECTIONS:
        os.environ.pop(name, None)
    for name in _FOLDERS:
        os.environ[name] = str(Path(folder.name, name.lower()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JDK_JAVA_OPTIONS"] = _JAVA
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def pytest_report_header() -> str:
    """Say how to repeat the run."""
    return f"SBNOTEBOOK_SEED={SEED}" + " SBNOTEBOOK_THOROUGH=1" * IS_THOROUGH


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave all tutorials but three to a thorough run: a notebook has no place for a mark."""
    if item.nodeid.startswith("notebooks/") and not item.nodeid.startswith(_TUTORIALS):
        item.add_marker("thorough")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process is left with it while the others have nothing to do."""
    # Spark gives the Python of a stream 10 s to start: not enough on a slow machine while all the others start, too.
    items.sort(key=lambda item: (_turn(item.nodeid), "stream" in item.path.name))


def _turn(nodeid: str) -> int:
    if nodeid.startswith(_SINGLY):
        return len(_LONG) + 1
    # The longest that fits: a Spark of its own starts when the others have started.
    return max(((len(start), turn) for turn, start in enumerate(_LONG) if nodeid.startswith(start)), default=_LAST)[1]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let Spark and browsers go first beside other tests: Spark gives the Python of a stream 10 s to start."""
    is_beside_others = "PYTEST_XDIST_WORKER" in os.environ
    if is_beside_others and not item.nodeid.startswith(_SHARED) and not os.nice(0):
        os.nice(_NICE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Give the tests of a file to one process, and those of a folder that share something large."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file in _SINGLY else _shared(file)

    return Scheduling(config, log)


@cache
def _shared(file: str) -> str:
    """The folder that a file shares something large with, or the file itself, such as one that uses no Spark."""
    folder = next(filter(file.startswith, _SHARED), file)
    is_apart = folder == "tests/spark/" and not _SPARK.search((_ROOT / file).read_text())
    return file if is_apart else folder
