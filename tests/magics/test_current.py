from __future__ import annotations

import subprocess
import sys

import pytest

from sbnotebook.client import connect
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ReadOnlyError
from sbnotebook.magics.current import Current

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
