"""A planted key is looked for in all that a kernel says and all that is written while it works, and is nowhere."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pyarrow.parquet as pq
import pytest

from sbnotebook.emulator import running
from sbnotebook.emulator.service.access import AuthorizationRule, Claim
from tests.kernels import running_kernel

KEY = "cGxhbnRlZC1wbGFudGVkLXBsYW50ZWQ"
WRONG = "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmc"
TIMEOUT = 60
CELLS = [
    """\
import logging, os, traceback
logging.basicConfig(filename="kernel.log", level=logging.WARNING)
logging.getLogger("sbnotebook").setLevel(logging.DEBUG)""",
    "%load_ext sbnotebook\n%sb_connect env:PLANTED --into ns",
    """\
from sbnotebook import Browser, Complete, LockBoard, Message, Monitor, Triage, connect
ns.create_queue("orders")
orders, letters = ns.entity("orders"), ns.entity("orders/$dlq")
orders.send([Message(body=b"%d" % n, subject="order") for n in range(6)])
with orders.lock(5) as batch:
    batch.dead_letter(reason="Bad", description="worse")""",
    "%sb_peek orders/$dlq\n%sb_groups orders/$dlq\n%sb_entities\n%sb_journal",
    """\
triage = Triage(ns, "orders/$dlq")
board = LockBoard(ns, orders.lock(1))
browser, monitor = Browser(ns, "orders"), Monitor(ns, ["orders"])
display(triage, board, browser, monitor)
monitor.sample(); triage.wait()
found = letters.peek(show_progress=False)
triage.actions.propose(lambda: letters.resubmit(found[:2]))
triage.actions.wait()
triage.actions._confirmation().click()
triage.actions.wait()
print(triage, board, browser, monitor, triage.actions.report)""",
    """\
print(letters.pick(letters.peek(2, show_progress=False), Complete()).apply())
print(ns.undo(entity=letters.address))""",
    "for ending in ('parquet', 'jsonl', 'csv'):\n    found.export(f'letters.{ending}')",
    """\
def fail(target):
    try:
        connect(target).entity("orders").peek()
    except Exception:
        print(traceback.format_exc())
for target in ("env:WRONG", "env:BROKEN", os.environ["WRONG"]):
    fail(target)""",
    "%sb_connect env:WRONG\n%sb_peek orders",
    "%sb_connect env:BROKEN",
    """\
from sbnotebook.client.targets import resolve
target = resolve("env:PLANTED")
shown = [ns, ns.about(), ns.remembered(), orders, letters, target, target.connection, ns.asynchronous, found, found[0]]
print(*map(repr, shown), *map(str, shown), ns.archive, ns.asynchronous.resources.journal)""",
    "ns.close()\nget_ipython().history_manager.writeout_cache()",
]


@pytest.fixture
def connections() -> Iterator[dict[str, str]]:
    """Connection strings by the variable that holds them: one that works and some that do not."""
    rule = AuthorizationRule("planted", KEY, "", frozenset(Claim))
    with running(keys=[rule]) as emulator:
        begin = f"{emulator.connection_string.split(';')[0]};SharedAccessKeyName=planted;SharedAccessKey="
        end = ";UseDevelopmentEmulator=true;"
        yield {
            "PLANTED": f"{begin}{KEY}{end}",
            "WRONG": f"{begin}{WRONG}{end}",
            "BROKEN": f"Endpoint=;SharedAccessKeyName=planted;SharedAccessKey={WRONG};",
        }


def test_no_key_is_said_or_written(connections: dict[str, str], tmp_path: Path) -> None:
    said = _run(connections, tmp_path, CELLS)
    errors = [message for message in said if '"msg_type": "error"' in message]
    assert errors == []
    text = "\n".join(said)
    for sign in ("5 messages", "2 messages", "orders/$dlq", "Traceback", "planted"):
        assert sign in text, sign
    written = {file.relative_to(tmp_path): _content(file) for file in tmp_path.rglob("*") if file.is_file()}
    assert {".jsonl", ".csv", ".parquet", ".sqlite", ".log"} <= {file.suffix for file in written}
    for key in (KEY, WRONG):
        assert [message[:500] for message in said if key in message] == []
        assert [file for file, content in written.items() if key.encode() in content] == []


def test_a_key_would_be_found(connections: dict[str, str], tmp_path: Path) -> None:
    cell = "import os\nprint(os.environ['PLANTED'], file=open('kernel.log', 'w'))\nprint(os.environ['PLANTED'])"
    assert KEY in "\n".join(_run(connections, tmp_path, [cell]))
    assert KEY.encode() in _content(tmp_path / "kernel.log")


def _run(connections: dict[str, str], folder: Path, cells: list[str]) -> list[str]:
    """Run cells in a kernel of its own; all that it said, widgets included, as text."""
    homes = {"XDG_DATA_HOME": "data", "IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime"}
    environment = {**os.environ, **connections, **{name: str(folder / home) for name, home in homes.items()}}
    said: list[str] = []
    with running_kernel(env=environment, cwd=str(folder)) as (_, started):
        client: Any = started
        for cell in cells:
            request = client.execute(cell)
            while True:
                message = client.get_iopub_msg(timeout=TIMEOUT)
                if message["msg_type"] != "execute_input":  # the front end's own echo
                    said.append(_text(message))
                is_own = message["parent_header"].get("msg_id") == request
                if is_own and message["content"].get("execution_state") == "idle":
                    break
            said.append(_text(client.get_shell_msg(timeout=TIMEOUT)))
        said += _rest(client)
    return said


def _rest(client: Any) -> Iterator[str]:
    """What widgets said after the cell that made them."""
    while True:
        try:
            yield _text(client.get_iopub_msg(timeout=0.5))
        except Empty:
            return


def _text(message: dict[str, Any]) -> str:
    buffers = [bytes(buffer) for buffer in message.get("buffers", [])]
    told = {name: message[name] for name in ("msg_type", "content", "metadata")}
    return json.dumps(told, default=str) + "".join(_unpacked(buffer).decode("utf-8", "replace") for buffer in buffers)


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


def _content(file: Path) -> bytes:
    reader: Any = pq
    return repr(reader.read_table(file).to_pylist()).encode() if file.suffix == ".parquet" else file.read_bytes()
