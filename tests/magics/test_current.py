from __future__ import annotations

import subprocess
import sys

import pytest

from sbnotebook.client import connect
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ReadOnlyError
from sbnotebook.magics.current import Current, SbMagics
from tests.magics.conftest import Kernel, Shell

LOCK_AND_END = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_line_magic("load_ext", "sbnotebook")
shell.run_line_magic("sb_connect", sys.argv[1])
print(len(shell.run_line_magic("sb_lock", "left-behind -n 2").messages))
"""


def test_locked_messages_are_released_when_the_shell_ends(emulator: RunningEmulator) -> None:
    emulator.create_queue("left-behind")
    with connect(emulator.connection_string) as namespace:
        namespace.entity("left-behind").send(["a", "b"])
        command = [sys.executable, "-c", LOCK_AND_END, emulator.connection_string]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert result.stdout.splitlines()[-1] == "2"
        with namespace.entity("left-behind").lock(2, max_wait=1) as batch:
            assert [message.delivery_count for message in batch.messages] == [0, 0]


def test_read_only_changes_earlier_connections_of_the_host(emulator: RunningEmulator) -> None:
    emulator.create_queue("opened-before")
    current = Current()
    before = current.connect(emulator.connection_string)
    queue = before.entity("opened-before")  # as panels have it
    queue.send(["a"])
    assert not current.connect(emulator.connection_string).read_only
    queue.send(["b"])
    current.connect(emulator.connection_string, write=False)
    assert len(queue.peek()) == 2
    current.close()
    again = current.connect(emulator.connection_string)
    current.reconnect(write=False)
    for opened in (queue, again.entity("opened-before")):
        with pytest.raises(ReadOnlyError):
            opened.send(["c"])
    current.reconnect(write=True)
    queue.send(["d"])
    assert len(queue.peek()) == 3
    before.close()
    again.close()
    current.close()


@pytest.fixture
def own(unconnected: Shell, emulator: RunningEmulator) -> Shell:
    """A shell whose settings may be changed."""
    unconnected.run(f"%sb_connect {emulator.connection_string} --into namespace")
    return unconnected


def test_counts_have_their_defaults_from_there(own: Shell, emulator: RunningEmulator) -> None:
    emulator.create_queue("set")
    own.run("rows = list('abcde')\n%sb_send set rows")
    own.run("%config SbMagics.peek_count = 3\n%config SbMagics.lock_count = 2\n%config SbMagics.max_in_flight = 1")
    assert len(own.run("%sb_peek set").value) == 3
    assert len(own.run("%sb_peek set -n 4").value) == 4
    assert len(own.run("%sb_lock set").value) == 2
    assert own.run("%sb_complete").value.settled == 2
    own.run("%config SbMagics.lock_count = 0")
    assert own.run("%config SbMagics.lock_count").value == 2, "IPython logs why a value cannot be"


@pytest.mark.parametrize(
    ("confirm", "is_emulator", "asks"),
    [
        ("always", True, True),
        ("always", False, True),
        ("outside_emulator", True, False),
        ("outside_emulator", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
def test_confirm_setting_decides_when_to_ask(confirm: str, is_emulator: bool, asks: bool) -> None:
    assert SbMagics(confirm=confirm).asks(is_emulator=is_emulator) is asks


def test_always_asks_in_the_emulator_too(kernel: Kernel, emulator: RunningEmulator) -> None:
    emulator.create_queue("questions")
    kernel.run(f"%sb_connect {emulator.connection_string}\n%config SbMagics.confirm = 'always'")
    try:
        assert "This kernel cannot ask, so nothing was done" in kernel.run("%sb_send questions 'x'").text
        assert emulator.counts("questions").active == 0
        assert len(kernel.run("%sb_send questions 'x'", answer="yes").prompts) == 1
        assert kernel.run("%sb_send questions 'x' --yes").prompts == []
        assert emulator.counts("questions").active == 2
    finally:
        kernel.run("%config SbMagics.confirm = 'outside_emulator'")
