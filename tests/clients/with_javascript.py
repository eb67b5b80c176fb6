"""The SDK for JavaScript over the developer emulator's connection string: ``make check-clients``.

What it does is in ``javascript/service_bus.test.mjs``, which ``make`` has copied beside its packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from sbnotebook.emulator import running

FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "javascript"
PATIENCE: Final = 110
"""Seconds in which all of them end."""


def test_javascript_sdk_works_with_the_emulator() -> None:
    node = shutil.which("node")
    assert node is not None
    with running() as emulator:
        environment = {**os.environ, "SERVICE_BUS": emulator.connection_string}
        ended = subprocess.run(
            [node, "--test", "--test-reporter=tap", "service_bus.test.mjs"],
            cwd=FOLDER,
            env=environment,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "# pass 12\n" in ended.stdout, ended.stdout
