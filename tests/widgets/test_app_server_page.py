from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from sbnotebook.emulator import running
from sbnotebook.widgets import app_server
from sbnotebook.widgets.app_server import VARIABLE, TriageRequest

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_is_wanted_reaches_a_kernel_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    wanted = TriageRequest("orders/$dlq", "env:ORDERS", write=True, max_messages=5, folder="/home")
    wanted.keep()
    assert TriageRequest.kept() == wanted


def test_a_page_that_only_looks_has_no_field_for_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    with running(queues=["orders"]) as emulator:
        for write in (True, False):
            TriageRequest("orders", emulator.connection_string, write=write, folder=str(tmp_path)).keep()
            panel = app_server.show()
            names = list(panel.bar.actions)
            assert "Export…" in names
            assert ("Edit and resubmit…" in names) is write
            panel.close()
