"""The tables against the SDK's own, in both directions."""

# ruff: noqa: SLF001
# The SDK's codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false, reportAttributeAccessIssue=false
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from azure.servicebus._pyamqp import _decode as sdk_decode
from azure.servicebus._pyamqp import _encode as sdk_encode
from azure.servicebus._pyamqp import endpoints as sdk_endpoints
from azure.servicebus._pyamqp import error as sdk_error
from azure.servicebus._pyamqp import outcomes as sdk_outcomes
from azure.servicebus._pyamqp import performatives as sdk
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Outcome,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    encode_settlement,
    encode_transfer,
    encode_within,
)

_FULL: list[Any] = [
    Open(
        container_id="emulator",
        hostname="localhost",
        max_frame_size=1_048_576,
        channel_max=4095,
        idle_time_out=120_000,
        outgoing_locales=("en-US",),
        incoming_locales=("en-US", "de-DE"),
        offered_capabilities=("a",),
        desired_capabilities=("b",),
        properties={"product": "x"},
    ),
    Begin(
        remote_channel=1,
        next_outgoing_id=2,
        incoming_window=3,
        outgoing_window=4,
        handle_max=255,
        offered_capabilities=("a",),
        desired_capabilities=("b",),
        properties={"k": 1},
    ),
    Attach(
        name="link",
        handle=300,
        role=RECEIVER,
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=Source("amqps://localhost:5672/orders", filter={"com.microsoft:session-filter": "s"}),
        target=Target("receiver-link"),
        initial_delivery_count=0,
        max_message_size=1_048_576,
        properties={"com.microsoft:timeout": 5},
    ),
    Flow(
        next_incoming_id=1,
        incoming_window=2**31 - 1,
        next_outgoing_id=0,
        outgoing_window=3,
        handle=4,
        delivery_count=5,
        link_credit=6,
        available=7,
        drain=True,
        echo=True,
        properties={"k": 1},
    ),
    Transfer(
        handle=4,
        delivery_id=9,
        delivery_tag=b"\x01" * 16,
        message_format=0,
        settled=True,
        more=True,
        rcv_settle_mode=1,
        resume=True,
        aborted=True,
        batchable=True,
    ),
    Disposition(role=SENDER, first=1, last=2, settled=True, state=Accepted(), batchable=True),
    Detach(handle=4, closed=True, error=Error("amqp:not-found", "no such queue", {"k": "v"})),
    End(error=Error("amqp:internal-error")),
    Close(error=Error("amqp:connection:framing-error", "why")),
]
_BARE: list[Any] = [
    Open(container_id="c"),
    Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=0),
    Attach(name="n", handle=0, role=SENDER),
    Attach(name="n", handle=0, role=SENDER, target=Coordinator(("amqp:local-transactions",))),
    Flow(incoming_window=0, next_outgoing_id=0, outgoing_window=0),
    Transfer(handle=0),
    Disposition(role=RECEIVER, first=0),
    Detach(handle=0),
    End(),
    Close(),
]


def _name(performative: object) -> str:
    return type(performative).__name__


@pytest.mark.parametrize(
    "performative", _FULL + _BARE, ids=[f"{_name(each)}-{at}" for at, each in enumerate(_FULL + _BARE)]
)
def test_a_written_performative_is_read_back(performative: Any) -> None:
    data = encode_composite(performative)
    assert decode_composite(data) == (performative, len(data))


@pytest.mark.parametrize("performative", _FULL, ids=_name)
def test_the_sdk_reads_the_same_fields(performative: Any) -> None:
    code, fields = sdk_decode.decode_frame(memoryview(encode_composite(performative)))
    assert code == getattr(sdk, f"{_name(performative)}Frame")._code
    for field, theirs in zip(dataclasses.fields(performative), fields, strict=False):
        expected = getattr(performative, field.name)
        if isinstance(expected, (str, int, bytes, bool)):
            assert theirs == (expected.encode() if isinstance(expected, str) else expected), field.name
        elif isinstance(expected, tuple):
            assert (theirs or []) == [each.encode() for each in expected], field.name


@pytest.mark.parametrize("performative", _BARE, ids=[f"{_name(each)}-{at}" for at, each in enumerate(_BARE)])
def test_the_sdk_sees_defaults_where_we_have_defaults(performative: Any) -> None:
    _, fields = sdk_decode.decode_frame(memoryview(encode_composite(performative)))
    table = getattr(sdk, f"{_name(performative)}Frame")._definition
    for field, definition, theirs in zip(dataclasses.fields(performative), table, fields, strict=False):
        if not definition.mandatory and isinstance(field.default, (int, bool)):
            assert theirs == field.default == definition.default, field.name


def test_the_tables_have_the_fields_of_the_sdk_in_its_order() -> None:
    names = {"snd_settle_mode": "send_settle_mode", "idle_time_out": "idle_timeout"}
    for kind in (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close):
        theirs = getattr(sdk, f"{kind.__name__}Frame")
        fields = [names.get(field.name, field.name) for field in dataclasses.fields(kind)]
        assert fields == [each for each in theirs._fields if each != "payload"]
        mandatory = [definition.mandatory for definition in theirs._definition if definition is not None]
        assert [field.default is dataclasses.MISSING for field in dataclasses.fields(kind)] == mandatory


_SDK_SOURCE = sdk_endpoints.Source(
    address="amqps://localhost:5672/orders", filters={b"com.microsoft:session-filter": "s"}, durable=0, timeout=0
)
_SDK_PAIRS: list[tuple[Any, Any]] = [
    (
        sdk.OpenFrame("c", "host", 1_048_576, 65_535, None, None, None, None, None, {"product": "x"}),
        Open(container_id="c", hostname="host", max_frame_size=1_048_576, properties={"product": "x"}),
    ),
    (
        sdk.BeginFrame(None, 0, 65_536, 65_536, 2**32 - 1, None, None, None),
        Begin(next_outgoing_id=0, incoming_window=65_536, outgoing_window=65_536),
    ),
    (
        sdk.AttachFrame(
            name="link",
            handle=1,
            role=True,
            send_settle_mode=0,
            rcv_settle_mode=1,
            source=_SDK_SOURCE,
            target=sdk_endpoints.Target(address="receiver-link"),
            unsettled=None,
            incomplete_unsettled=False,
            initial_delivery_count=None,
            max_message_size=0,
            offered_capabilities=None,
            desired_capabilities=None,
            properties={b"com.microsoft:receiver-name": "me"},
        ),
        Attach(
            name="link",
            handle=1,
            role=RECEIVER,
            snd_settle_mode=0,
            rcv_settle_mode=1,
            source=Source("amqps://localhost:5672/orders", filter={"com.microsoft:session-filter": "s"}),
            target=Target("receiver-link"),
            max_message_size=0,
            properties={"com.microsoft:receiver-name": "me"},
        ),
    ),
    (
        sdk.FlowFrame(0, 65_536, 1, 65_536, 2, 3, 4, None, True, None, None),
        Flow(
            next_incoming_id=0,
            incoming_window=65_536,
            next_outgoing_id=1,
            outgoing_window=65_536,
            handle=2,
            delivery_count=3,
            link_credit=4,
            drain=True,
        ),
    ),
    (
        sdk.TransferFrame(1, 7, b"\0\0\0\1", 0, False, False, None, None, None, None, None, b""),
        Transfer(handle=1, delivery_id=7, delivery_tag=b"\0\0\0\1", message_format=0, settled=False),
    ),
    (sdk.DetachFrame(1, True, None), Detach(handle=1, closed=True)),
    (sdk.EndFrame(None), End()),
    (
        sdk.CloseFrame(sdk_error.AMQPError(condition=b"amqp:connection:forced", description="why", info=None)),
        Close(error=Error("amqp:connection:forced", "why")),
    ),
]
_SDK_STATES: list[tuple[Any, Outcome]] = [
    (sdk_outcomes.Accepted(), Accepted()),
    (sdk_outcomes.Released(), Released()),
    (
        sdk_outcomes.Modified(True, True, {}),
        Modified(delivery_failed=True, undeliverable_here=True),
    ),
    (sdk_outcomes.Modified(True, None, None), Modified(delivery_failed=True)),
    (
        sdk_outcomes.Rejected(
            sdk_error.AMQPError(
                condition=b"com.microsoft:dead-letter",
                description=None,
                info={b"DeadLetterReason": "r", b"DeadLetterErrorDescription": None},
            )
        ),
        Rejected(
            Error("com.microsoft:dead-letter", None, {"DeadLetterReason": "r", "DeadLetterErrorDescription": None})
        ),
    ),
]


def _written_by_sdk(performative: Any) -> bytes:
    body = sdk_encode.encode_frame(performative)[1]
    assert body is not None
    return bytes(body)


@pytest.mark.parametrize(("theirs", "expected"), _SDK_PAIRS, ids=[_name(each) for each, _ in _SDK_PAIRS])
def test_performatives_of_the_sdk_are_read(theirs: Any, expected: Any) -> None:
    data = _written_by_sdk(theirs)
    found, end = decode_composite(data)
    assert end == len(data)
    for field in dataclasses.fields(expected):
        left, right = getattr(found, field.name), getattr(expected, field.name)
        # The SDK writes an empty map or text where we leave the field out.
        assert left == right or (not left and not right), field.name


@pytest.mark.parametrize(("state", "expected"), _SDK_STATES, ids=[repr(each) for _, each in _SDK_STATES])
def test_every_decision_of_the_sdk_is_read(state: Any, expected: Outcome) -> None:
    data = _written_by_sdk(sdk.DispositionFrame(True, 5, 5, False, state, None))
    assert decode_composite(data)[0] == Disposition(role=RECEIVER, first=5, last=5, state=expected)


@given(
    role=st.booleans(),
    delivery_id=st.integers(0, 2**32 - 1),
    outcome=st.one_of(
        st.sampled_from([Accepted(), Released(), Rejected(), Modified(True, True)]),
        st.builds(Rejected, st.builds(Error, st.just("amqp:not-found"), st.text(max_size=250))),
    ),
)
def test_the_quick_way_to_settle_says_the_same(role: bool, delivery_id: int, outcome: Outcome) -> None:
    data = encode_settlement(2**20, role, delivery_id, outcome)
    expected = Disposition(role=role, first=delivery_id, last=delivery_id, settled=True, state=outcome)
    assert decode_composite(data) == (expected, len(data))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=1, max_size=32),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.booleans(),
)
def test_the_quick_way_to_transfer_says_the_same(
    handle: int, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool
) -> None:
    data = encode_transfer(handle, delivery_id, tag, message_format, settled=settled, more=more)
    numbers: dict[str, Any] = {
        "handle": handle,
        "delivery_id": delivery_id,
        "delivery_tag": tag,
        "message_format": message_format,
    }
    assert decode_composite(data) == (Transfer(**numbers, settled=settled, more=more), len(data))


_LONG_ERROR = Error("amqp:not-found", "\U0001f600" * 300, {"k": "v" * 300})


@pytest.mark.parametrize(
    "performative",
    [
        Detach(handle=2**32 - 1, closed=True, error=_LONG_ERROR),
        End(error=_LONG_ERROR),
        Close(error=_LONG_ERROR),
        Disposition(role=SENDER, first=2**32 - 1, last=2**32 - 1, settled=True, state=Rejected(_LONG_ERROR)),
    ],
    ids=_name,
)
def test_an_error_is_cut_to_the_peers_frame_size(performative: Any) -> None:
    whole = encode_composite(performative)
    assert encode_within(len(whole), performative) == whole
    cut = encode_within(504, performative)
    assert len(cut) <= 504
    found: Any = decode_composite(cut)[0]
    error = found.state.error if isinstance(performative, Disposition) else found.error
    assert (error.condition, error.description, error.info) == ("amqp:not-found", "\U0001f600" * 80, {})
    if isinstance(performative, Disposition):
        assert encode_settlement(504, SENDER, 2**32 - 1, Rejected(_LONG_ERROR)) == cut
