"""The packed bodies of a table share one allowance."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

import sbnotebook
from sbnotebook.client import Namespace
from sbnotebook.client.messages import Messages
from sbnotebook.emulator import running
from sbnotebook.model import Message
from sbnotebook.model.budget import UNPACKED_BYTES, UNPACKED_BYTES_OF_TABLE, UNPACKED_TIMES
from sbnotebook.widgets.peek_steps import PeekRequest, peek_in_steps
from tests.filled_queues import filled_client_queue

BOMB = gzip.compress(b"x" * UNPACKED_BYTES, mtime=0)
COUNT = 120


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with running() as server, sbnotebook.connect(server.connection_string) as namespace:
        bombs = [Message(body=BOMB, content_encoding="gzip", message_id=f"m{n}") for n in range(COUNT)]
        filled_client_queue(namespace, "bombs", bombs)
        yield namespace


def _texts(messages: Messages) -> list[str]:
    texts: list[Any] = messages.to_arrow().column("body_text").to_pylist()
    return texts


def test_small_bombs_take_one_allowance_together(namespace: Namespace) -> None:
    messages = namespace.entity("bombs").peek(show_progress=False)
    texts = _texts(messages)
    least = UNPACKED_TIMES * len(BOMB)
    assert len(texts) == COUNT
    assert sum(map(len, texts)) < UNPACKED_BYTES_OF_TABLE + COUNT * (least + 100)
    assert texts[0] == "x" * UNPACKED_BYTES, "the first are unpacked as one alone is"
    assert texts[-1] == "x" * least + f"… (cut at {least:,} bytes)"
    assert messages[-1].body == BOMB, "the bytes are all there"
    assert messages[-1].body_text == "x" * UNPACKED_BYTES, "a message that you look at is unpacked by itself"


def test_the_repr_of_many_bombs_holds_one_text_at_a_time(namespace: Namespace) -> None:
    messages = namespace.entity("bombs").peek(50, show_progress=False)
    tracemalloc.start()
    shown = messages._repr_html_()  # pyright: ignore[reportPrivateUsage]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown.count("(1,048,576 characters)") == 50
    assert peak < 20 * UNPACKED_BYTES


def test_parts_of_one_table_share_the_allowance(namespace: Namespace) -> None:
    sizes: list[int] = []
    for part, _ in peek_in_steps(namespace.entity("bombs"), PeekRequest(COUNT), Event()):
        sizes.extend(map(len, _texts(part)))
    assert len(sizes) == COUNT
    assert sum(sizes) < UNPACKED_BYTES_OF_TABLE + COUNT * (UNPACKED_TIMES * len(BOMB) + 100)


def test_what_text_shrinks_to_is_unpacked_in_any_number(namespace: Namespace) -> None:
    body = b"".join(b'{"flight": %d, "carrier": "UA", "origin": "EWR"}' % (n * 7_919) for n in range(19_000))
    packed = Message(body=gzip.compress(body), content_encoding="gzip")
    assert UNPACKED_TIMES > len(body) / len(packed.body) > 4
    queue = filled_client_queue(namespace, "packed", [packed] * 80)
    texts = _texts(queue.peek(show_progress=False))
    assert sum(map(len, texts)) > UNPACKED_BYTES_OF_TABLE
    assert set(texts) == {body.decode()}
