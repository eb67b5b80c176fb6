from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.widgets.app_page import VARIABLE, TriageRequest

if TYPE_CHECKING:
    import pytest

REMOTE = "orders.servicebus.windows.net"


def test_what_is_wanted_reaches_a_kernel_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    wanted = TriageRequest("orders/$dlq", "env:ORDERS", is_read_only=False, max_messages=5, folder="/home")
    wanted.keep()
    assert TriageRequest.kept() == wanted


def test_request_is_read_only_outside_the_emulator() -> None:
    for wanted, is_read_only in ((None, True), (True, True), (False, False)):
        with TriageRequest("orders", REMOTE, is_read_only=wanted).namespace() as namespace:
            assert namespace.read_only is is_read_only
