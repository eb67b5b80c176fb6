"""The SDK for JavaScript over the developer emulator's connection string: ``make check-clients``.

What it does is in ``javascript/service_bus.test.mjs``, which ``make`` has copied beside its packages.
The administration
client speaks HTTPS only, so the emulator has TLS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "javascript"
PATIENCE: Final = 110
"""Seconds in which all of them end."""


def test_javascript_sdk_works_with_the_emulator(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--tls", "--tls-port", "0"]
    with subprocess.Popen([*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True) as emulator:
        assert emulator.stdout is not None
        plain, encrypted, certificate = (emulator.stdout.readline().strip() for _ in range(3))
        environment = {
            **os.environ,
            "SERVICE_BUS": plain,
            "SERVICE_BUS_TLS": encrypted,
            "NODE_EXTRA_CA_CERTS": certificate.removeprefix("Certificate to trust: "),
        }
        ended = subprocess.run(
            [node, "--test", "--test-reporter=tap", "service_bus.test.mjs"],
            cwd=FOLDER,
            env=environment,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
            check=False,
        )
        emulator.terminate()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "# pass 12\n" in ended.stdout, ended.stdout
