from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.amqp.frames import EMPTY_FRAME, SASL_FRAME, FrameReader, FrameWriter
from sbnotebook.errors import ProtocolViolationError


def _frames(reader: FrameReader) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    while (each := reader.next_frame()) is not None:
        found.append(each)
    return found


def test_a_written_frame_is_read_back() -> None:
    writer = FrameWriter()
    writer.write(3, b"body", b"payload")
    writer.write(0, b"sasl", kind=SASL_FRAME)
    writer.write_bytes(EMPTY_FRAME)
    reader = FrameReader(512)
    reader.receive(writer.take())
    assert _frames(reader) == [(0, 3, b"bodypayload"), (1, 0, b"sasl"), (0, 0, b"")]
    assert writer.take() == b""


def test_a_protocol_header_comes_before_frames() -> None:
    reader = FrameReader(512)
    reader.receive(b"AMQP\x00\x01")
    assert reader.next_header() is None
    reader.receive(b"\x00\x00" + EMPTY_FRAME)
    assert reader.next_header() == b"AMQP\x00\x01\x00\x00"
    assert _frames(reader) == [(0, 0, b"")]


def test_an_extended_header_is_skipped() -> None:
    reader = FrameReader(512)
    reader.receive(bytes.fromhex("0000000e03000001deadbeef") + b"ab")
    assert _frames(reader) == [(0, 1, b"ab")]


@given(
    bodies=st.lists(st.binary(max_size=60), max_size=20),
    cuts=st.lists(st.integers(0, 1500), max_size=40),
)
def test_the_pieces_do_not_matter(bodies: list[bytes], cuts: list[int]) -> None:
    writer = FrameWriter()
    for channel, body in enumerate(bodies):
        writer.write(channel, body)
    data = writer.take()
    reader = FrameReader(512)
    found: list[tuple[int, int, bytes]] = []
    for start, end in pairwise(sorted([0, *(cut for cut in cuts if cut < len(data)), len(data)])):
        reader.receive(data[start:end])
        found += _frames(reader)
    assert found == [(0, channel, body) for channel, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("0000020102000000", "513 bytes is larger than 512"),
        ("ffffffff02000000", "larger than 512"),
        ("0000000702000000", "makes no sense"),
        ("0000000001000000", "makes no sense"),
        ("0000000801000000", "makes no sense"),
        ("0000000803000000", "makes no sense"),
        ("00000008ff000000", "makes no sense"),
    ],
)
def test_a_header_that_makes_no_sense_is_a_violation(header: str, why: str) -> None:
    reader = FrameReader(512)
    reader.receive(bytes.fromhex(header))
    with pytest.raises(ProtocolViolationError, match=why):
        reader.next_frame()


def test_a_large_frame_in_single_bytes_is_not_copied_often() -> None:
    short, long = (_seconds_in_single_bytes(size) for size in (1 << 15, 1 << 18))
    # Eight times as long; copying the buffer with each byte would make it forty times and more.
    assert long < 20 * short


def _seconds_in_single_bytes(size: int) -> float:
    writer = FrameWriter()
    writer.write(0, b"x" * (size - 8))
    data = writer.take()
    reader = FrameReader(size)
    started = time.thread_time()
    found: list[tuple[int, int, bytes]] = []
    for at in range(size):
        reader.receive(data[at : at + 1])
        found += _frames(reader)
    assert found == [(0, 0, data[8:])]
    return time.thread_time() - started


def test_a_large_frame_in_small_pieces_takes_little_memory() -> None:
    size = 200_000
    tracemalloc.start()
    try:
        reader = FrameReader(1_000_000)
        reader.receive((2 * size).to_bytes(4) + b"\x02\x00\x00\x00")
        for at in range(size // 2):
            reader.receive(at.to_bytes(3)[1:])  # a new object each time
            assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] < 2 * size
    finally:
        tracemalloc.stop()
