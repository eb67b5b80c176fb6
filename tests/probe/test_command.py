from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from sbnotebook.emulator import RunningEmulator, Tier, running

SBNOTEBOOK = Path(sys.executable).with_name("sbnotebook")


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["users"]) as server:
        yield server


def start(folder: Path, connection_string: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "COLUMNS": "200", "NAMESPACE_UNDER_TEST": connection_string}
    command = [str(SBNOTEBOOK), "probe", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def queues(emulator: RunningEmulator) -> list[str]:
    with urlopen(f"{emulator.http_url}/entities", timeout=60) as answer:  # noqa: S310
        return [queue["name"] for queue in json.load(answer)["queues"]]


def test_it_asks_before_it_begins(emulator: RunningEmulator, tmp_path: Path) -> None:
    process = start(tmp_path, emulator.connection_string, "env:NAMESPACE_UNDER_TEST")
    shown, _ = process.communicate("n\n", timeout=60)
    assert process.returncode == 1
    assert "No other entity is touched." in shown
    assert "at most 5" in shown
    assert "operations" in shown
    assert queues(emulator) == ["users"]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_no_queue(emulator: RunningEmulator, tmp_path: Path) -> None:
    process = start(tmp_path, emulator.connection_string, "env:NAMESPACE_UNDER_TEST", "--yes", "--report", "seen.md")
    deadline = time.monotonic() + 60
    while len(queues(emulator)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    assert queues(emulator) == ["users"]
    assert "Not removed" not in shown
    assert "Traceback" not in shown
    report = (tmp_path / "seen.md").read_text()
    assert "it did not end" in report
    assert "SAS_KEY_VALUE" not in shown + report
    assert "127.0.0.1" not in report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Endpoint=sb://shop.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"], "env:VARIABLE"),
        (["env:NAMESPACE_UNDER_TEST", "--report", "."], "exists"),
        (["env:NAMESPACE_UNDER_TEST", "--report", "none/seen.md"], "There is no folder none"),
        (["env:NAMESPACE_UNDER_TEST"], "Standard or Premium"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    with running(tier=Tier.BASIC) as basic:
        process = start(tmp_path, basic.connection_string, *arguments)
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said in shown
    assert "c2VjcmV0" not in shown
