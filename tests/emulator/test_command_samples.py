"""Plain scripts with the samples of the SDK's documentation, against ``sbnotebook emulator``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
NAMES = ("queue_sync", "queue_async")


@pytest.fixture(scope="module")
def connection_string(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    main = "from sbnotebook.cli import main; main()"
    options = ["--port", "0", "--http-port", "0", "--data-dir", str(tmp_path_factory.mktemp("samples"))]
    queues = [option for name in NAMES for option in ("--queue", name)]
    command = [sys.executable, "-c", main, "emulator", *options, *queues]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
    assert process.returncode == 0


def test_documented_samples_run_with_a_connection_string_only(connection_string: str) -> None:
    """Both at once: they wait most of the time."""
    running: list[subprocess.Popen[str]] = []
    for name in NAMES:
        environment = {**os.environ, "SERVICEBUS_CONNECTION_STR": connection_string, "SERVICEBUS_QUEUE_NAME": name}
        command = [sys.executable, str(SAMPLES / f"{name}.py")]
        running.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    for process in running:
        said, _ = process.communicate(timeout=120)
        assert (process.returncode, said.count("done")) == (0, 5), said
