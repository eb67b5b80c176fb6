"""The SDK's own tests, from its source distribution; they are fetched once and never changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

__all__ = ["LIVE", "VERSION", "tests_of_the_sdk"]

VERSION: Final = "7.15.0"
LIVE: Final = (
    "test_queues.py",
    "test_sessions.py",
    "test_subscriptions.py",
    "test_topic.py",
    "test_list_sessions.py",
    "test_sb_client.py",
    "test_message.py",
    "async_tests",
    "mgmt_tests",
)
"""The folders of the tests that use a namespace."""

_HERE: Final = Path(__file__).parent
_CACHE: Final = _HERE.parents[1] / ".conformance"


def tests_of_the_sdk() -> Path:
    """Return the folder of the tests, after downloading them from the package index once.

    Raises:
        subprocess.CalledProcessError: the download failed, or its hash is wrong.
    """
    folder = _CACHE / f"azure_servicebus-{VERSION}" / "tests"
    if not folder.is_dir():
        _CACHE.mkdir(exist_ok=True)
        draft = _CACHE / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        _download(draft)
        with tarfile.open(next(draft.glob("*.tar.gz"))) as archive:
            archive.extractall(draft, filter="data")
        (draft / folder.parent.name).replace(folder.parent)
        shutil.rmtree(draft)
    return folder


def _download(target: Path) -> None:
    # The requirements file beside this one has the hash; pip compares it.
    wanted = ["--require-hashes", "--no-deps", "--no-binary", "azure-servicebus"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run([*command, "--dest", str(target), "--requirement", str(_HERE / "azure-servicebus.txt")], check=True)
