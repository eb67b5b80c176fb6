"""Hostile texts do not stall sbnotebook: every regular expression is linear, and a text costs little in all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

import pytest

from sbnotebook.analysis import descriptions
from sbnotebook.analysis.groups import group_by_cause
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.connection_strings import scrub
from tests.chances import rounds
from tests.security.patterns import Pattern, Writer, cpu_time, hidden_uses, hostile_texts, parts_of, patterns

ROUNDS = rounds(1, 2)
"""``SBNOTEBOOK_CRASHES`` asks for more texts than the few of each test run."""
TEXTS = 240
LENGTHS, LONGEST = (20, 256, 2_048), 2**21
MEASURABLE, ENDLESS = 0.001, 0.015
TIMES_AS_LONG, MOST_GROWTH = 4, 8
"""For four times the text a linear pattern takes four times as long, a quadratic one sixteen times."""
MEASURED = 5
"""Growths whose median counts: a processor is slow at times, for the short text or for the long one."""
MOST_OF_ORDINARY = 6
"""The most expensive text takes about three times as long as an ordinary stack trace."""
DEAD = EntityAddress.parse("orders/$dlq")


def growth(pattern: Pattern, chance: random.Random, count: int) -> float:
    """Return how many times as long the slowest text takes when it is ``TIMES_AS_LONG`` times as long."""
    texts = list(hostile_texts(pattern.compiled, chance, count))
    costs: dict[Writer, float] = {}
    for length, text in product(LENGTHS, texts):
        costs[text] = cpu_time(partial(pattern.run, text(length)), times=2, enough=MEASURABLE / 4)
        if costs[text] > ENDLESS:  # a cubic or exponential one would take minutes for the next length
            return float("inf")
    slowest, length = max(costs, key=lambda text: costs[text]), LENGTHS[-1]
    while length < LONGEST and cpu_time(partial(pattern.run, slowest(length)), times=2) < MEASURABLE:
        length *= 2
    short, long = partial(pattern.run, slowest(length)), partial(pattern.run, slowest(TIMES_AS_LONG * length))
    return median(times_as_dear(long, short) for _ in range(MEASURED))


def test_every_pattern_is_a_constant_of_its_module() -> None:
    # Or the next test would not see it.
    assert hidden_uses() == []


@pytest.mark.thorough
def test_every_pattern_is_linear() -> None:
    chance = random.Random(16)  # noqa: S311 (no secret)
    grown = {str(pattern): growth(pattern, chance, TEXTS * ROUNDS) for pattern in patterns()}
    assert len(grown) >= 50
    assert {name: times for name, times in grown.items() if times > MOST_GROWTH} == {}


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"\s*(?:\.\.\. \d+ more|-{3,}.*-{3,}|[\s^~]*)\s*", "fullmatch"),
        (r"(bearer\s+)[\w.~+/=-]{16,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*", "sub"),
        (r"\s*File \"([^\"]+)\", line \d+", "search"),
        (r"\(?((?:[A-Za-z]:)?[^\s():]+):\d+(?::\d+)?\)?$", "search"),
        (r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?|[0-9]+\.", "fullmatch"),
        (r"\w*$", "search"),
        (r"(?:a|a)*b", "match"),
    ],
)
@pytest.mark.thorough
def test_a_slow_pattern_is_found(source: str, method: str) -> None:
    pattern = Pattern("here", "SLOW", re.compile(source), frozenset({method}))
    assert growth(pattern, random.Random(16), TEXTS) > MOST_GROWTH  # noqa: S311 (no secret)


# ---------------------------------------------------------------- all patterns for a text together

FOUND = (
    r"-----------------------------------------x", " 'a", '\\"', "\u201c", "at a.b[[[[[[[[[[[[[[(\n", "a\n", "\n",
    " [as a",
    "-eyJ", "eyJa.b. ", " sig=a", "sacp", "at a.b$1(\n", "a.", "a@", "a.a@a.", "1 ", "at a.js:1:1\n", 'File "', "\\n",
    'File "a", line 1, in b\n', "Caused by: ", "a:1:", "<>c.", "   at a", "\u0130",
)  # fmt: skip
"""Texts that were slow once, or are the most expensive."""


def texts_of(length: int, count: int) -> list[str]:
    chance = random.Random(length)  # noqa: S311 (no secret)
    own = [each.compiled for each in patterns() if each.module.endswith(("descriptions.py", "connection.py"))]
    parts = [*FOUND, *(part for pattern in own for part in parts_of(pattern))]
    repeated = ["".join(chance.choices(parts, k=chance.randint(1, 3))) for _ in range(count)]
    mixed = ["".join(chance.choices(parts, k=length // 2)) for _ in range(count // 4)]
    return [(text * (length // len(text) + 1))[:length] for text in (*FOUND, *repeated, *mixed)]


def examine(text: str) -> None:
    descriptions._plain.cache_clear()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    descriptions._plain.cache_clear()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    properties = {"DeadLetterReason": text, "DeadLetterErrorDescription": text}
    message = PeekedMessage(entity=DEAD, sequence_number=1, application_properties=properties)
    (group,) = group_by_cause([message])
    assert len(group.cause or "") <= 200
    scrub(text)


def ordinary(length: int) -> str:
    frames = "".join(f"\tat com.acme.seats.Booking.take(Booking.java:{line})\n" for line in range(length // 40))
    return f"Caused by: com.acme.SeatError: no seat for 'QF1' on 2026-03-04\n{frames}"[:length]


@pytest.mark.parametrize(("length", "count"), [(4_096, 60), (65_536, 8)])
@pytest.mark.thorough
def test_any_text_costs_little_in_all_patterns_together(length: int, count: int) -> None:
    plain = partial(examine, ordinary(length))
    most = cpu_time(plain, times=9) * MOST_OF_ORDINARY
    dear = [text for text in texts_of(length, count * ROUNDS) if cpu_time(partial(examine, text), enough=most) > most]
    # A processor is slow at times: only a text that stays dear in turns with the ordinary text is dear.
    costs = {text[:60]: min(times_as_dear(partial(examine, text), plain) for _ in range(5)) for text in dear}
    assert {text: times for text, times in costs.items() if times > MOST_OF_ORDINARY} == {}


def times_as_dear(work: Callable[[], object], plain: Callable[[], object]) -> float:
    return cpu_time(work, times=3) / cpu_time(plain, times=3)
