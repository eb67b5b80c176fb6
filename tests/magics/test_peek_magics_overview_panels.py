"""Each panel opens from its magic: as a widget in a notebook, as text in a terminal."""

from __future__ import annotations

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Kernel, Shell

WIDGET = "application/vnd.jupyter.widget-view+json"
PANELS = ["%sb_browse", "%sb_browse panel", "%sb_triage panel/$dlq -n 10", "%sb_monitor panel --every 1m"]


@pytest.fixture(scope="module")
def queue(emulator: RunningEmulator) -> str:
    emulator.create_queue("panel")
    return "panel"


@pytest.mark.parametrize("line", PANELS)
@pytest.mark.usefixtures("queue")
def test_in_a_terminal_it_is_text(shell: Shell, line: str) -> None:
    panel = shell.run(line).value
    try:
        assert "panel" in repr(panel)
        assert "application/vnd" not in repr(panel)
        assert not repr(panel).startswith(f"{type(panel).__name__}("), "it is not what ipywidgets says of it"
    finally:
        panel.close()


@pytest.mark.usefixtures("queue")
def test_in_a_notebook_it_is_a_widget(kernel: Kernel, emulator: RunningEmulator) -> None:
    kernel.run(f"%sb_connect {emulator.connection_string}")
    for line in PANELS:
        ran = kernel.run(f"{line}")
        first, *others = [output["data"] for output in ran.outputs if "data" in output]
        assert WIDGET in first, (line, ran)
        assert [set(data) for data in others] in ([], [{"text/html", "text/plain"}]), "a record for readers"
        kernel.run("_.close()")
        assert kernel.run(f"panel = {line}").outputs == []
        kernel.run("panel.close()")
