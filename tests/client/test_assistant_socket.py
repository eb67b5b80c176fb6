from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.assistant import Assistant, RemoteAssistant, Sharing
from sbnotebook.errors import ConfigurationError, DecisionError
from tests.client.test_assistant import asked, letters


@pytest.fixture
def folder(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(short_path))
    return short_path / "sbnotebook" / "assistant"


@pytest.fixture
def shared(namespace: Namespace, folder: Path) -> Iterator[Assistant]:  # noqa: ARG001
    assistant = Assistant(lambda: namespace, may_plan=True)
    sharing = Sharing(assistant)
    yield assistant
    sharing.close()


def test_a_notebook_shares_its_assistant_and_confirms(namespace: Namespace, shared: Assistant) -> None:
    letters(namespace, "shared")
    remote = RemoteAssistant()
    assert list(remote.tools) == list(shared.tools)
    text, failed = remote.call("plan", {"entity": "shared/$dlq", "action": "complete", "where": "true"})
    digest = json.loads(text)["digest"]
    assert not failed
    assert "Complete 3 messages" in str(remote.question(digest))
    assert remote.call("apply", {"digest": digest})[1]
    assert [each.digest for each in shared.waiting()] == [digest]
    shared.confirm(digest)
    assert remote.question(digest) is None
    assert not remote.call("apply", {"digest": digest})[1]
    assert not namespace.entity("shared/$dlq").peek()


def test_of_two_clients_one_applies_a_plan(namespace: Namespace, shared: Assistant) -> None:
    letters(namespace, "raced")
    digest = asked(shared, "plan", entity="raced/$dlq", action="resubmit", where="true")["digest"]
    shared.confirm(digest)
    ends: list[bool] = []

    def client() -> None:
        ends.append(RemoteAssistant().call("apply", {"digest": digest})[1])

    clients = [threading.Thread(target=client) for _ in range(4)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert sorted(ends) == [False, True, True, True]
    assert len(namespace.entity("raced").peek()) == 3


def test_only_the_owner_can_reach_the_socket(shared: Assistant, folder: Path) -> None:  # noqa: ARG001
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("sent", [b"nonsense\n", b'["proposal", "x"]\n', b'["_keep", 1]\n', b"[]\n"])
def test_the_socket_offers_nothing_else(shared: Assistant, folder: Path, sent: bytes) -> None:  # noqa: ARG001
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(folder / "socket"))
        line.sendall(sent)
        assert "error" in json.loads(line.makefile("rb").readline())


def test_a_client_that_is_killed_harms_nothing(shared: Assistant, folder: Path) -> None:  # noqa: ARG001
    for sent in (b"", b'["call", "journal"', b'["call", "journal", {}]\n'):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(folder / "socket"))
            line.sendall(sent)
    assert RemoteAssistant().call("journal", {})[1] is False


def test_without_a_notebook_it_says_so(namespace: Namespace, folder: Path) -> None:  # noqa: ARG001
    with pytest.raises(ConfigurationError, match="run %sb_assistant"):
        RemoteAssistant()
    sharing = Sharing(Assistant(lambda: namespace))
    remote = RemoteAssistant()
    sharing.close()
    with pytest.raises((ConfigurationError, DecisionError), match="notebook"):
        remote.call("journal", {})


def test_the_last_notebook_is_reached(namespace: Namespace, folder: Path) -> None:  # noqa: ARG001
    first = Sharing(Assistant(lambda: namespace))
    second = Sharing(Assistant(lambda: namespace, may_plan=True))
    assert "plan" in RemoteAssistant().tools
    second.close()
    first.close()


def test_a_long_path_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ("x" * 100)))
    with pytest.raises(ConfigurationError, match="too long for a socket"):
        RemoteAssistant()
