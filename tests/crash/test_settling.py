"""A worker is killed while it settles by the rows of a frame; Spark runs its task again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sbnotebook.settlement.actions.reach import GONE
from tests.crash import settling_driver
from tests.crash.settling_driver import COUNT
from tests.kills import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


@pytest.mark.thorough  # test_streams.py kills a worker, too
def test_killed_worker_leaves_outcomes_unknown_and_others_settled(tmp_path: Path) -> None:
    command = [sys.executable, "-m", settling_driver.__name__, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    runs: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    first = {status: count for status, _, count in runs[0]["outcomes"]}
    assert sum(first.values()) == COUNT
    assert first["unconfirmed"] > 0, "the first run of the task had settled some, and nobody heard of it"
    assert first["settled"] > 0
    for status, description, _ in runs[0]["outcomes"]:
        # What the killed worker holds, for as long as its locks last.
        if status == "skipped":
            assert "another receiver has its lock" in description
        else:
            assert status in ("settled", "unconfirmed"), description
    for run in runs[1:]:
        assert all(status in ("settled", "not found") for status, _, _ in run["outcomes"])
        assert any(description == GONE for _, description, _ in run["outcomes"])
    assert runs[-1]["left"] == 0
    assert runs[-1]["archived"] == COUNT, "each can be sent back, whoever removed it"
