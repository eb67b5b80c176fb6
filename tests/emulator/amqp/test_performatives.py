"""The tables against the SDK's own, and the quick ways against the tables."""

# ruff: noqa: SLF001
# The SDK's codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false, reportAttributeAccessIssue=false
from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from typing import Any, get_type_hints

import pytest
from azure.servicebus._pyamqp import performatives as sdk
from azure.servicebus._pyamqp.types import AMQPTypes, FieldDefinition, ObjDefinition
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import UByte, UInt, ULong, UShort
from sbnotebook.emulator.amqp.performatives import (
    SENDER,
    Accepted,
    Anything,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Fields,
    Flow,
    Modified,
    Open,
    Outcome,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    decode_composite,
    encode_composite,
    encode_disposition,
    encode_transfer,
    encode_within,
)

_WIRE_TYPES: dict[Any, Any] = {
    str: AMQPTypes.string, bytes: AMQPTypes.binary, bool: AMQPTypes.boolean, UByte: AMQPTypes.ubyte,
    UShort: AMQPTypes.ushort, UInt: AMQPTypes.uint, ULong: AMQPTypes.ulong,
    Anything: AMQPTypes.map, Fields: FieldDefinition.fields, Source: ObjDefinition.source,
    Target: ObjDefinition.target, Error: ObjDefinition.error, Received: ObjDefinition.delivery_state,
}  # fmt: skip
_NAMES = {"snd_settle_mode": "send_settle_mode", "idle_time_out": "idle_timeout"}


@pytest.mark.parametrize("kind", [Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close])
def test_the_fields_of_a_table_are_those_of_the_sdk(kind: Any) -> None:
    table = getattr(sdk, f"{kind.__name__}Frame")._definition
    hints, fields = get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
    ours = [
        (_NAMES.get(each.name, each.name), _WIRE_TYPES[hints[each.name].__metadata__[0]], each.default is MISSING)
        for each in fields
    ]
    # The last fields are left out if the emulator does not use them, and some take any value.
    declared = [each for each in table if each is not None][: len(ours)]
    types = [
        AMQPTypes.map if own == AMQPTypes.map else each.type for (_, own, _), each in zip(ours, declared, strict=True)
    ]
    theirs = [(each.name, kind, each.mandatory) for each, kind in zip(declared, types, strict=True)]
    assert ours == theirs
    for field, definition in zip(fields, table, strict=False):
        assert not isinstance(field.default, int) or field.default == definition.default, field.name


@given(
    role=st.booleans(),
    delivery_id=st.integers(0, 2**32 - 1),
    outcome=st.one_of(
        st.sampled_from([Accepted(), Released(), Rejected(), Modified(True, True)]),
        st.builds(Rejected, st.builds(Error, st.just("amqp:not-found"), st.text(max_size=250))),
    ),
    settled=st.booleans(),
)
def test_the_quick_way_to_settle_says_the_same(role: bool, delivery_id: int, outcome: Outcome, settled: bool) -> None:
    data = encode_disposition(2**20, role, delivery_id, outcome, settled=settled)
    expected = Disposition(role=role, first=delivery_id, last=delivery_id, settled=settled, state=outcome)
    assert decode_composite(data) == (expected, len(data))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=1, max_size=32),
    st.booleans(),
    st.booleans(),
)
def test_the_quick_way_to_transfer_says_the_same(
    handle: int, delivery_id: int, tag: bytes, settled: bool, more: bool
) -> None:
    data = encode_transfer(handle, delivery_id, tag, settled=settled, more=more)
    numbers: dict[str, Any] = {"handle": handle, "delivery_id": delivery_id, "delivery_tag": tag, "message_format": 0}
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
    ids=lambda performative: type(performative).__name__,
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
        assert encode_disposition(504, SENDER, 2**32 - 1, Rejected(_LONG_ERROR), settled=True) == cut


def test_an_error_is_always_sent_with_its_three_fields() -> None:
    # azure-servicebus looks for the third one without asking whether it is there, and hangs.
    data = encode_composite(Rejected(Error("amqp:not-found")))
    assert data.hex() == "005325c01b0100531dc01503" + "a30e" + b"amqp:not-found".hex() + "40c10100"
