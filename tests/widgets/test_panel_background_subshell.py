"""Clicks while a cell runs, in a real kernel: the messages are those that a browser sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kernels import running_kernel

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

TIMEOUT = 60.0
PREPARE = """
import time
from sbnotebook import Message, connect
from sbnotebook.emulator import running
from sbnotebook.settlement import Limits
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.monitor import Monitor
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.triage import Triage
server = running(queues=["orders"])
namespace = connect(server.__enter__().connection_string)
orders = namespace.entity("orders")
_ = orders.send([Message(body=b"x")] * 500)
panel = ActionPanel(namespace)

def place_of(panel, name):
    return next((place for place, node in panel.view.whole()["nodes"].items() if node.get("name") == name), None)

def words_of(panel):
    return text_of(panel.blocks())
"""
# The browser learns of the button before its user can click on it.
CARRY_OUT = """
panel.propose(lambda: orders.purge(show_progress=False), limits=Limits(rate=5))
while not place_of(panel, "Carry out") or panel.is_looking:
    time.sleep(0.01)
print(panel.view.comm.comm_id, place_of(panel, "Carry out"), sep=":")
"""
CANCEL = """
while not place_of(panel, "Cancel"):
    time.sleep(0.01)
print(panel.view.comm.comm_id, place_of(panel, "Cancel"), sep=":")
"""
BUSY = """
print("The cell runs.")
deadline = time.monotonic() + 20
while panel.is_looking and time.monotonic() < deadline:
    time.sleep(0.01)
print("It was cancelled." if time.monotonic() < deadline else "It was not.")
"""
OLDER = "from ipykernel.comm.comm import BaseComm; del BaseComm._reply_subshell_for"
END = "namespace.close(); server.__exit__(None, None, None)"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingKernelClient]:
    with running_kernel(cwd=str(tmp_path)) as (_, client):
        yield client
        run(client, END)


def run(client: BlockingKernelClient, code: str, then: Callable[[], object] = lambda: None) -> str:
    """Run a cell to its end; gives what it prints, and calls a function as soon as it prints something."""
    printed: list[str] = []

    def collect(message: dict[str, dict[str, str]]) -> None:
        text = message["content"].get("text", "")
        if text and not any(printed):
            then()
        printed.append(text)

    reply = client.execute_interactive(code, output_hook=collect, timeout=TIMEOUT)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed).strip()


UNTIL_THEN = """
from concurrent.futures import Future
from sbnotebook.widgets import panel as panels
import ipywidgets

def shell_of(*answers):
    made, button = Future(), ipywidgets.Button()
    panels._subshell = lambda: made
    panels.answer_at_once(button)
    for answer in answers:
        made.set_result(answer)
    return button.comm._reply_subshell_for({}, "the front end's")

print(shell_of(), shell_of("ours"), shell_of(None), sep=", ")
"""


def click(client: BlockingKernelClient, button: str) -> None:
    comm, _, place = button.partition(":")
    data = {"method": "custom", "content": {"kind": "act", "place": place}}
    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm, "data": data}))


def test_cancel_stops_a_plan_while_a_cell_runs(client: BlockingKernelClient) -> None:
    run(client, PREPARE)
    click(client, run(client, CARRY_OUT))
    cancel = run(client, CANCEL)
    assert "It was cancelled." in run(client, BUSY, lambda: click(client, cancel))
    assert run(client, "print(len(panel.report) == 500 > panel.report.settled)") == "True"


def test_a_click_before_the_subshell_goes_where_it_was_sent(client: BlockingKernelClient) -> None:
    run(client, PREPARE)
    assert run(client, UNTIL_THEN) == "the front end's, ours, the front end's"


def test_panels_say_what_waits_where_a_kernel_has_no_subshells(client: BlockingKernelClient) -> None:
    run(client, f"{OLDER}\n{PREPARE}")
    click(client, run(client, CARRY_OUT))
    run(client, CANCEL)
    assert "Pause and Cancel wait" in run(client, "print(panel)")
    assert "all buttons and forms wait" in run(client, "print(words_of(Triage(namespace, 'orders')))")
    assert "Stop, Start and the interval wait" in run(client, "print(words_of(Monitor(namespace, ['orders'])))")
    run(client, "panel.cancel(); _ = panel.wait()")
