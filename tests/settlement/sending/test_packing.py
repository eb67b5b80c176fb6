from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp.sections import section_value, split
from sbnotebook.model import EntityAddress, Message, Outcome
from sbnotebook.settlement.sending.packing import EncodedMessage, Pack, Packer, Sizes
from sbnotebook.settlement.wire.encoding import EncodedRows, payload_of

SIZES = Sizes(message=5_000, batch=1_000)


class Pulling:
    """A packer that a thread pulls with, as in a send."""

    def __init__(self, messages: Iterable[Message | EncodedRows], max_count: int = 1000, sizes: Sizes = SIZES) -> None:
        self.packer = Packer(messages, "send", EntityAddress("orders"), sizes, max_count)
        self.refused: list[tuple[int, Outcome]] = []

    def packs(self) -> Iterator[Pack]:
        while not self.packer.is_ended:
            thread = threading.Thread(target=self.packer.pull, args=(self.packer.max_count,), daemon=True)
            thread.start()
            while thread.is_alive():
                thread.join(0.01)
                yield from self._take()
            yield from self._take()
        yield from self._take(all_open=True)

    def _take(self, *, all_open: bool = False) -> list[Pack]:
        packs, refused = self.packer.take(all_open=all_open)
        self.refused += refused
        return packs


def all_packs(messages: Iterable[Message | EncodedRows], max_count: int = 1000) -> list[Pack]:
    return list(Pulling(messages, max_count).packs())


def indexes(packs: Iterable[Pack]) -> list[list[int]]:
    return [[item.index for item in pack.items] for pack in packs]


MESSAGES = st.lists(
    st.builds(
        Message,
        body=st.sampled_from([0, 10, 300, 980, 1_500, 4_900]).map(bytes),
        session_id=st.none() | st.sampled_from("ab"),
        partition_key=st.none() | st.sampled_from("ab"),
        message_id=st.none() | st.just("m"),
    ),
    max_size=60,
)


@given(MESSAGES, st.integers(1, 20))
def test_every_message_is_in_one_pack_within_the_limits(messages: list[Message], max_count: int) -> None:
    packs = all_packs(messages, max_count)
    assert sorted(index for pack in indexes(packs) for index in pack) == list(range(len(messages)))
    for pack in packs:
        assert 1 <= len(pack.items) <= max_count
        assert len(pack.transfer()) <= (SIZES.batch if pack.is_batch else SIZES.message)
        assert all(messages[item.index].session_id == pack.session_id for item in pack.items)
        assert all(item.payload == payload_of(messages[item.index]) for item in pack.items)
        if pack.session_id is None:
            assert all(messages[item.index].partition_key == pack.partition_key for item in pack.items)


def test_open_pack_is_given_after_10000_other_messages() -> None:
    def messages() -> Iterator[Message]:
        yield Message(session_id="first")
        while True:
            yield Message()

    pulling = Pulling(messages(), max_count=500)
    before = list(itertools.takewhile(lambda pack: pack.session_id is None, pulling.packs()))
    assert sum(len(pack.items) for pack in before) <= 11_000


def test_many_sessions_with_large_messages_stay_within_bounds() -> None:
    pulled = taken = 0
    body = bytes(500_000)

    def messages() -> Iterator[Message]:
        nonlocal pulled
        for number in range(100):
            pulled += 1
            yield Message(body=body, session_id=f"s{number}")

    for pack in Pulling(messages(), sizes=Sizes(message=600_000, batch=1_000_000)).packs():
        assert pulled == 100 or pulled - taken <= 37, "16 MiB wait for others of their session"
        taken += len(pack.items)
    assert taken == 100


def test_open_pack_is_given_after_a_second_without_input() -> None:
    more = threading.Event()

    def messages() -> Iterator[Message]:
        yield Message(message_id="first")
        assert more.wait(30)
        yield Message(message_id="second")

    pulling = Pulling(messages())
    packs = pulling.packs()
    assert [item.message_id for item in next(packs).items] == ["first"]
    more.set()
    assert [item.message_id for item in next(packs).items] == ["second"]


@given(st.lists(MESSAGES.filter(bool), max_size=4), st.integers(1, 20), st.booleans())
def test_encoded_rows_are_packed_like_messages(runs: list[list[Message]], max_count: int, first_encoded: bool) -> None:
    """Give every second run as encoded rows."""
    pulled: list[Message | EncodedRows] = []
    expected: list[bytes] = []
    for number, run in enumerate(runs):
        plain = [message.with_changes(session_id=None, partition_key=None) for message in run]
        payloads = [*map(payload_of, plain)]
        expected += payloads
        encoded = EncodedRows(payloads, [message.message_id for message in plain])
        pulled += [encoded] if (number % 2 == 0) is first_encoded else plain
    packs = all_packs(pulled, max_count)
    assert [index for pack in indexes(packs) for index in pack] == list(range(len(expected)))
    assert [item.payload for pack in packs for item in pack.items] == expected
    for pack in packs:
        assert 1 <= len(pack.items) <= max_count
        assert len(pack.transfer()) <= (SIZES.batch if pack.is_batch else SIZES.message)


def test_only_too_large_rows_of_encoded_rows_are_refused() -> None:
    before = [Message() for _ in range(5)]
    rows = EncodedRows([b"a", bytes(SIZES.message + 1), b"b", bytes(SIZES.message)], ["1", "2", None, "3"])
    pulling = Pulling([*before, rows])
    items = [item for pack in pulling.packs() for item in pack.items][len(before) :]
    assert [(item.index, item.message_id) for item in items] == [(5, "1"), (7, None), (8, "3")]
    [(index, outcome)] = pulling.refused
    assert (index, outcome.message_id, outcome.condition) == (6, "2", "amqp:link:message-size-exceeded")
    assert outcome.retryable is False


@pytest.mark.parametrize(("too_many", "packs"), [(0, [[0, 1]]), (1, [[0], [1]])])
def test_a_pack_is_filled_to_the_last_byte(too_many: int, packs: list[list[int]]) -> None:
    around = len(Pack(None, None, b"", [EncodedMessage(n, None, b"") for n in range(2)]).transfer())
    rows = EncodedRows([bytes(300), bytes(SIZES.batch - around - 300 + too_many)], [None, None])
    filled = all_packs([rows])
    assert indexes(filled) == packs
    assert max(len(pack.transfer()) for pack in filled) <= SIZES.batch


def test_batch_envelope_has_the_keys_and_the_first_id() -> None:
    message = Message(message_id="m", session_id="s", partition_key="s")
    [pack] = all_packs([message, message.with_changes(message_id="n")])
    annotations, properties = split(pack.envelope)
    assert section_value(pack.envelope, annotations) == {"x-opt-partition-key": "s"}
    assert section_value(pack.envelope, properties) == ["m", *[None] * 9, "s"]
    [pack] = all_packs([EncodedRows([b"a", b"b"], ["m", "n"])])
    [properties] = split(pack.envelope)
    assert section_value(pack.envelope, properties) == ["m", *[None] * 10]
    [pack] = all_packs([EncodedRows([b"a", b"b"], [None, None])])
    assert pack.envelope == b""
    [pack] = all_packs([Message(session_id="s"), Message(session_id="s")])
    [properties] = split(pack.envelope)
    assert section_value(pack.envelope, properties) == [None] * 10 + ["s"]
