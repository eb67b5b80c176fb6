"""A whole conversation, written by the SDK's own encoder, cut and damaged in every way."""

# The SDK's codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

from itertools import pairwise
from typing import Any

from azure.servicebus._pyamqp import _encode as sdk_encode
from azure.servicebus._pyamqp import endpoints as sdk_endpoints
from azure.servicebus._pyamqp import error as sdk_error
from azure.servicebus._pyamqp import outcomes as sdk_outcomes
from azure.servicebus._pyamqp import performatives as sdk
from hypothesis import given, settings
from hypothesis import strategies as st

from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.frames import AMQP_FRAME
from sbnotebook.emulator.amqp.link import (
    DispositionReceived,
    Event,
    LinkState,
    ReceivingLink,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.amqp.performatives import Accepted, Close, Error, decode_composite
from tests.chances import rounds

_SASL = b"AMQP\x03\x01\x00\x00"
_AMQP = b"AMQP\x00\x01\x00\x00"


def _frame(performative: Any, *, channel: int = 1, kind: bytes = b"\x00") -> bytes:
    head, body = sdk_encode.encode_frame(performative, kind)
    return head + channel.to_bytes(2, "big") + bytes(body or b"")


def _attach(handle: int, address: str, *, receives: bool, session: str | None = None) -> bytes:
    filters = None if session is None else {b"com.microsoft:session-filter": session}
    ours = sdk_endpoints.Source(address=address, filters=filters) if receives else sdk_endpoints.Source(address="me")
    theirs = sdk_endpoints.Target(address="me") if receives else sdk_endpoints.Target(address=address)
    return _frame(
        sdk.AttachFrame(
            name=f"link-{handle}",
            handle=handle,
            role=receives,
            send_settle_mode=0,
            rcv_settle_mode=1,
            source=ours,
            target=theirs,
            unsettled=None,
            incomplete_unsettled=False,
            initial_delivery_count=0,
            max_message_size=0,
            offered_capabilities=None,
            desired_capabilities=None,
            properties={b"com.microsoft:receiver-name": "me"},
        )
    )


def _transfer(handle: int, delivery_id: int, payload: bytes, *, more: bool = False) -> bytes:
    tag = delivery_id.to_bytes(4, "big")
    return _frame(sdk.TransferFrame(handle, delivery_id, tag, 0, False, more, None, None, None, None, None, payload))


def _flow(handle: int | None, credit: int | None, *, drain: bool = False) -> bytes:
    return _frame(sdk.FlowFrame(0, 65_536, 0, 65_536, handle, 0, credit, None, drain, None, None))


def _disposition(first: int, last: int, state: Any, *, settled: bool = False) -> bytes:
    return _frame(sdk.DispositionFrame(True, first, last, settled, state, None))


_DEAD_LETTER = sdk_error.AMQPError(
    condition=b"com.microsoft:dead-letter", description=None, info={b"DeadLetterReason": "r"}
)
FRAMES = [
    _SASL,
    _frame(sdk.SASLInit(b"ANONYMOUS", b"", "localhost"), channel=0, kind=b"\x01"),
    _AMQP,
    _frame(sdk.OpenFrame("c", "host", 1 << 20, 65_535, None, None, None, None, None, {"product": "x"}), channel=0),
    _frame(sdk.BeginFrame(None, 0, 65_536, 65_536, 2**32 - 1, None, None, None)),
    _attach(0, "$cbs", receives=False),
    _attach(1, "$cbs", receives=True),
    _flow(1, 300),
    _transfer(0, 0, b"\x00\x53\x77\xa1\x05token"),
    _attach(2, "missing", receives=False),
    _attach(3, "orders", receives=False),
    _attach(4, "orders", receives=True, session="s"),
    _flow(4, 10),
    _transfer(3, 1, b"\x00\x53\x75\xa0\x04body"),
    _transfer(3, 2, b"x" * 40, more=True),
    _transfer(3, 2, b"y" * 40),
    _disposition(0, 0, sdk_outcomes.Accepted()),
    _disposition(1, 1, sdk_outcomes.Modified(True, True, {})),
    _disposition(2, 2, sdk_outcomes.Rejected(_DEAD_LETTER)),
    _disposition(3, 5, sdk_outcomes.Released(), settled=True),
    _frame(None, channel=0),
    _flow(4, 0, drain=True),
    _flow(None, None),
    _frame(sdk.DetachFrame(4, True, None)),
    _frame(sdk.DetachFrame(2, True, None)),
    _frame(sdk.EndFrame(None)),
    _frame(sdk.DetachFrame(3, True, None)),
    _frame(sdk.CloseFrame(None), channel=0),
]
STREAM = b"".join(FRAMES)


class _Broker:
    """An owner that answers every event as a broker would, and records the events."""

    def __init__(self) -> None:
        self.connection = AmqpConnection()
        self.told: list[str] = []
        self.sent = b""
        self._tags = 0

    def receive(self, data: bytes) -> None:
        self.connection.receive_data(data)
        has_more = True
        while has_more:
            has_more = self.connection.read()
            for event in self.connection.events:
                self.told.append(_name(event))
                self._answer(event)
            self.connection.events.clear()
        self.sent += self.connection.data_to_send()

    def _answer(self, event: Event) -> None:
        match event:
            case TransferReceived(link=link, delivery_id=delivery_id):
                link.settle(delivery_id, Accepted())
            case DispositionReceived(link=link, delivery_tag=tag, outcome=outcome):
                link.settle(tag, outcome)
            case link if link.state is LinkState.ATTACHING and link.address == "missing":
                link.detach(Error("amqp:not-found", "There is no such queue."))
            case link if link.state is LinkState.ATTACHING:
                link.accept(max_message_size=1 << 20)
                if isinstance(link, ReceivingLink):
                    link.grant_credit(10)
            case SendingLink() as link if link.state is LinkState.ATTACHED:
                self._send(link)
            case _:
                pass

    def _send(self, link: SendingLink) -> None:
        for _ in range(min(link.credit, 6)):
            self._tags += 1
            link.send(self._tags.to_bytes(16, "big"), b"\x00\x53\x75\xa0\x01x", settled=self._tags % 3 == 0)
        if link.drain:
            link.drained()


def _name(event: Event) -> str:
    return type(event).__name__ if isinstance(event, TransferReceived | DispositionReceived) else event.state.name


def _answers(sent: bytes) -> list[Any]:
    """Return the server's output, which has to be well formed for any input."""
    found: list[Any] = []
    at = 0
    while at < len(sent):
        if sent.startswith(b"AMQP", at):
            at += 8
            continue
        size = int.from_bytes(sent[at : at + 4], "big")
        assert 8 <= size <= len(sent) - at
        if sent[at + 5] == AMQP_FRAME:
            found.append(decode_composite(sent[at + 8 : at + size])[0])
        at += size
    return found


def _kinds(items: list[Any]) -> list[str]:
    return [type(each).__name__ for each in items]


def test_the_undamaged_conversation() -> None:
    broker = _Broker()
    for each in FRAMES:
        broker.receive(each)
    assert broker.told == [
        *["ATTACHING"] * 2,  # $cbs, both ways
        "ATTACHED",  # with other credit
        "TransferReceived",
        *["ATTACHING"] * 3,  # a missing queue, and an existing one, both ways
        "ATTACHED",
        *["TransferReceived"] * 2,
        # Of the six that are named, every third one was sent settled.
        *["DispositionReceived"] * 4,
        "ATTACHED",
        *["ENDED"] * 4,
    ]
    assert broker.connection.is_closed
    answers = _answers(broker.sent)
    assert answers[-1] == Close()
    # Three for what the peer sent, two for what it asked us to settle.
    assert _kinds(answers).count("Disposition") == 3 + 2


def _survives(pieces: list[bytes]) -> None:
    broker = _Broker()
    for piece in pieces:
        broker.receive(piece)
    answers = _answers(broker.sent)
    if "Open" in _kinds(answers):
        assert broker.connection.is_closed == isinstance(answers[-1], Close)
    if broker.connection.is_closed:
        count = len(broker.told)
        broker.receive(STREAM)
        assert len(broker.told) == count
    else:
        broker.connection.close()
        assert broker.connection.is_closed


_MUTATIONS = st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 255)), min_size=1, max_size=8)


@settings(max_examples=rounds(100, 1000))
@given(_MUTATIONS)
def test_changed_bytes_end_in_a_close_and_never_in_a_crash(changes: list[tuple[int, int]]) -> None:
    data = bytearray(STREAM)
    for at, byte in changes:
        data[at] = byte
    ends = [0]
    for each in FRAMES:
        ends.append(ends[-1] + len(each))
    _survives([bytes(data[start:end]) for start, end in pairwise(ends)])


@settings(max_examples=rounds(100, 1000))
@given(
    st.integers(13, len(FRAMES) - 1).flatmap(
        lambda at: st.tuples(
            st.just(at),
            st.lists(st.tuples(st.integers(0, len(FRAMES[at]) - 1), st.integers(0, 255)), min_size=1, max_size=4),
        )
    )
)
def test_damage_in_one_frame_of_an_open_connection(damage: tuple[int, list[tuple[int, int]]]) -> None:
    which, changes = damage
    frame = bytearray(FRAMES[which])
    for at, byte in changes:
        frame[at] = byte
    _survives([*FRAMES[:which], bytes(frame), *FRAMES[which + 1 :]])


@settings(max_examples=rounds(50, 500))
@given(st.lists(st.sampled_from(FRAMES[4:]), max_size=40), st.booleans())
def test_frames_in_any_order(frames: list[bytes], together: bool) -> None:
    pieces = [*FRAMES[:4], *frames]
    _survives([b"".join(pieces)] if together else pieces)


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    _survives([data])
    _survives([*FRAMES[:4], data])
