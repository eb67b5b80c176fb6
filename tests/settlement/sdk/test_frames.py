from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.message import BatchMessage, Message
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.amqp.composites import encode_composite
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Disposition,
    Error,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
    encode_settlement,
    encode_transfer,
)
from sbnotebook.settlement.sdk import frames
from sbnotebook.settlement.sdk.frames import Encoded
from sbnotebook.settlement.sdk.private import TransferFrame

NUMBERS = st.integers(0, 2**32 - 1)
SHORT_LIST = 0xC0


@given(
    numbers=st.tuples(NUMBERS, NUMBERS),
    tag=st.none() | st.binary(max_size=6),
    message_format=NUMBERS,
    flags=st.tuples(st.booleans(), st.booleans()),
    aborted=st.none() | st.booleans(),
    payload=st.binary(max_size=300),
)
def test_transfer_frames_say_what_the_sdk_says(
    numbers: tuple[int, int],
    tag: bytes | None,
    message_format: int,
    flags: tuple[bool, bool],
    aborted: bool | None,
    payload: bytes,
) -> None:
    frame = TransferFrame(*numbers, tag, message_format, *flags, aborted=aborted, payload=payload)
    theirs, ours = encode_frame(frame), frames.encode_frame(frame)
    for head, rest in (theirs, ours):
        assert rest is not None
        assert head == (len(head) + 2 + len(rest)).to_bytes(4, "big") + b"\2\0"  # two bytes are the channel
    assert ours[1] is not None
    assert read(ours[1]) == read(theirs[1])
    if ours[1][3] == SHORT_LIST:
        assert ours[1][4] == len(ours[1]) - len(payload) - 5, "behind its own size, the list has so many bytes"


UINTS = st.sampled_from([0, 1, 200, 300, 2**32 - 1])
STATES = st.none() | st.sampled_from(
    [Accepted(), Released(), Rejected(Error("amqp:not-found", "It is gone.")), TransactionalState(b"1234", Accepted())]
)


@given(
    frame=st.builds(
        Transfer,
        handle=UINTS,
        delivery_id=st.none() | UINTS,
        delivery_tag=st.none() | st.binary(max_size=20) | st.binary(min_size=16, max_size=16),
        message_format=st.none() | UINTS,
        settled=st.none() | st.booleans(),
        more=st.booleans(),
        state=STATES,
    )
    | st.builds(
        Disposition,
        role=st.booleans(),
        first=UINTS,
        last=st.none() | UINTS,
        settled=st.booleans(),
        state=STATES,
    ),
    numbers=st.tuples(UINTS, UINTS),
    tag=st.binary(min_size=16, max_size=16),
    payload=st.binary(max_size=100),
)
def test_frames_are_decoded_as_by_the_sdk(
    frame: Transfer | Disposition, numbers: tuple[int, int], tag: bytes, payload: bytes
) -> None:
    number, last = numbers
    again = (
        replace(frame, delivery_id=number, delivery_tag=tag)
        if isinstance(frame, Transfer)
        else replace(frame, first=number, last=last)
    )
    quick = (
        encode_transfer(3, number, tag, settled=False, more=False)
        if isinstance(frame, Transfer)
        else encode_settlement(1_000, frame.role, number, Accepted())
    )
    for encoded in (encode_composite(frame), encode_composite(again), quick):
        body = memoryview(encoded + (payload if isinstance(frame, Transfer) else b""))
        for _ in range(2):
            assert frames.decode_frame(body) == decode_frame(body)
        cut = body[: len(encoded) - 1]
        assert outcome_of(frames.decode_frame, cut) == outcome_of(decode_frame, cut)


def outcome_of(decode: Callable[[memoryview], object], body: memoryview) -> object:
    try:
        return decode(body)
    except Exception as error:  # noqa: BLE001 (the SDK raises various errors)
        return repr(error)


def test_forms_of_frames_that_are_kept_are_few() -> None:
    for number in range(1_000):
        frames.decode_frame(
            memoryview(
                encode_composite(
                    Disposition(
                        role=False, first=300, last=300, state=Rejected(Error("amqp:not-found", f"Number {number}"))
                    )
                )
            )
        )
    assert 0 < len(vars(frames)["_forms"]) <= 64


def test_messages_and_batches_have_the_formats_of_the_sdk() -> None:
    formats = [Encoded(b"", is_batch=is_batch).format for is_batch in (False, True)]
    assert formats == [vars(kind)["_code"] for kind in (Message, BatchMessage)]


def read(frame: bytes | None) -> tuple[int, list[object]]:
    code, fields = decode_frame(memoryview(frame or b""))
    return code, [*fields[:-1], bytes(fields[-1])]
