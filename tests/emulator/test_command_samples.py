"""Plain scripts with the samples of the SDK's documentation, against ``sbnotebook emulator``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(scope="module")
def connection_string(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    main = "from sbnotebook.cli import main; main()"
    options = ["--port", "0", "--http-port", "0", "--data-dir", str(tmp_path_factory.mktemp("samples"))]
    command = [sys.executable, "-c", main, "emulator", *options, "--queue", "queue_sync", "--queue", "queue_async"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["queue_sync", "queue_async"])
def test_documented_samples_run_with_a_connection_string_only(name: str, connection_string: str) -> None:
    environment = {**os.environ, "SERVICEBUS_CONNECTION_STR": connection_string, "SERVICEBUS_QUEUE_NAME": name}
    ended = subprocess.run(
        [sys.executable, str(SAMPLES / f"{name}.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("done") == 5
