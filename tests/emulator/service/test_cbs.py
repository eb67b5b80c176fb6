from __future__ import annotations

from sbnotebook.emulator.service.cbs import CbsNode
from sbnotebook.emulator.service.requests import Request
from sbnotebook.model.amqp import Int


def test_any_token_is_good() -> None:
    reply = CbsNode("$cbs").answer(Request("put-token", "whatever"))
    assert reply.application_properties["status-code"] == 202
    assert type(reply.application_properties["status-code"]) is Int


def test_another_operation_is_not_there() -> None:
    reply = CbsNode("$cbs").answer(Request("fly", None))
    assert reply.application_properties["status-code"] == 501
