"""A worker is killed while it settles by the rows of a frame; Spark runs its task again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import settling_driver
from tests.crash.settling_driver import COUNT
from tests.kills import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


@pytest.mark.thorough  # test_streams.py kills a worker, too
def test_repeated_task_settles_what_a_killed_worker_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", settling_driver.__name__]
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "were not there any more (a run before this one settled them" in result.stderr
    # Any of the removed messages can be sent back.
    assert json.loads(result.stdout.splitlines()[-1]) == {"left": 0, "archived": COUNT}
