from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message
from sbnotebook.widgets.monitor import Monitor, pause_after
from sbnotebook.widgets.renderers.words import text_of
from tests.widgets.conftest import click, parts, until


def told(monitor: Monitor, kind: str, view: str = "one") -> None:
    """What a browser that begins or ceases to show it sends."""
    browser: Any = monitor.view
    browser._handle_custom_msg({"kind": "seen", "how": kind, "page": view}, [])  # noqa: SLF001 (as ipywidgets does)


def test_it_is_stopped_and_started_and_kept_as_a_frame(namespace: Namespace) -> None:
    namespace.create_queue("kept")
    monitor = Monitor(namespace, ["kept"], every=0.1)
    monitor.start()
    until(lambda: len(monitor.to_pandas()) >= 2)
    click(monitor, "Stop")
    until(lambda: not monitor.is_sampling)
    assert "Stopped." in text_of(monitor.blocks())
    told(monitor, "here")
    assert not monitor.is_sampling, "it was stopped"
    taken = len(monitor.to_pandas())
    click(monitor, "Start")
    until(lambda: len(monitor.to_pandas()) > taken)
    monitor.close()

    namespace.entity("kept").send([Message(body=b"x")] * 5)
    monitor.sample()
    frame: Any = monitor.to_pandas()
    assert list(frame["entity"].unique()) == ["kept"]
    assert frame["active"].iloc[-1] == 5
    assert frame["arrived"].iloc[-1] > 0
    assert frame["newest"].iloc[-1] == 5
    namespace.delete_queue("kept")


def test_in_a_terminal_it_is_a_table(namespace: Namespace) -> None:
    monitor = Monitor(namespace, ["events"])
    assert "no samples yet" in repr(monitor)
    table = monitor.to_text()
    assert "events/subscriptions/audit" in table
    assert "at least" in table
    monitor.close()


def test_where_our_script_is_not_loaded_it_says_the_numbers(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBNOTEBOOK_WIDGETS", "plain")
    monitor = Monitor(namespace, ["events/subscriptions/audit"], every=0.1)
    assert monitor.widget.children
    until(lambda: monitor.to_pandas().size)
    until(lambda: any("active: 0 now" in str(getattr(each, "value", "")) for each in parts(monitor.widget)))
    monitor.close()
    until(lambda: not monitor.is_sampling)


def test_what_goes_wrong_is_said_and_tried_again() -> None:
    with running(queues=["orders"]) as emulator:
        namespace = connect(emulator.connection_string)
        monitor = Monitor(namespace, ["nowhere"], every=0.1)
        told(monitor, "here")
        until(lambda: "no queue, topic or subscription 'nowhere'" in text_of(monitor.blocks()))
        namespace.create_queue("nowhere")
        until(lambda: "as of" in text_of(monitor.blocks()))
        monitor.close()
        namespace.close()


def test_what_cannot_be_is_refused(namespace: Namespace) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        Monitor(namespace, every=0)
    with pytest.raises(ConfigurationError, match="is counted with orders"):
        Monitor(namespace, ["orders/$dlq"])


@pytest.mark.parametrize(
    ("every", "took", "failures", "expected"),
    [(5, 0.1, 0, 5), (5, 2, 0, 10), (5, 0, 1, 10), (5, 0, 3, 40), (5, 0, 100, 300), (600, 0, 2, 600)],
)
def test_it_asks_less_often_where_it_is_slow_or_fails(
    every: float, took: float, failures: int, expected: float
) -> None:
    assert pause_after(every, took, failures) == expected
