"""Streams are killed at random moments, and every message is counted afterwards: ``make crash`` does it often."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.chances import chance, rounds
from tests.crash.story import PLENTY, Life, Story, Victim, lives_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

STREAMS: Final = rounds(1, 4)
ONE_WAY_MS: Final = (0, 25)
"""Milliseconds to the emulator, and as many back."""
LIVES: Final = 3
"""Drivers that die in a stream."""
SHORT: Final = [
    Life([Victim.EMULATOR, Victim.WORKER, Victim.STREAM, Victim.DRIVER], options={"maxMessagesPerTrigger": "100"}),
    Life([], is_available_now=True, options={"maxMessagesPerTrigger": "100", "partitions": "2"}),
]
"""Each kind of death once, in as few lives as can be: each takes Java some seconds to start."""
FEW: Final = 120
"""Messages that wait meanwhile: the query that ends by itself takes them in two micro-batches."""


@pytest.mark.parametrize("number", range(STREAMS))
def test_killed_stream_reads_each_message_once(tmp_path: Path, number: int) -> None:
    seed = f"stream {number}"
    lives = lives_of(chance(seed), LIVES) if number else SHORT
    mode = "browse" if number % 5 == 4 else "consume"
    tell(run(tmp_path, mode, seed, lives, ONE_WAY_MS[number // 2 % 2], PLENTY if number else FEW))


def run(directory: Path, mode: str, seed: str, lives: list[Life], one_way_ms: int, plenty: int) -> Counter[int]:
    """One story."""
    print(f"{seed}, {mode}, {one_way_ms} ms: {lives}")  # noqa: T201 - pytest shows it if the test fails
    with Story(directory, mode, seed, one_way_ms, plenty) as story:
        story.live(lives)
        counts = story.emulator.counts()
        assert not story.drivers[-1].heard("failed")
    delivered = story.check()
    assert mode == "browse" or not counts
    return delivered


def tell(delivered: Counter[int]) -> None:
    """What the kills cost."""
    print(f"messages by how often they were delivered: {dict(sorted(delivered.items()))}")  # noqa: T201
