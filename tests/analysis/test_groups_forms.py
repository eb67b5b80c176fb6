"""Causes read once for each form of a description: the same as read from each description."""

from __future__ import annotations

import uuid
from itertools import cycle
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbnotebook.analysis.descriptions import cause_of
from sbnotebook.analysis.groups import CauseReader
from tests.chances import rounds

WORDS: Final = (
    "Flight", "error", "Error code", "exit code", "HTTP", "status", "404", "503 Server Error", "404 Client Error",
    "0x8", "0xff", "0x80131500", "ORA-", "utf8", "Int32", "sha256", "S3", "x64", "1545",
    "20130101", "2013-01-01", "05:15:00", "+1", "5%", "3ms", "12,5", "10.0.0.7:80", "N14228", "deadbeef0123",
    "May 2024", "Market 1234", "'a1'",
    '"b 2"', "/srv/data1/x2", "C:\\\\a1", "https://x.example/1?q=2", "a1@b2.example",
    "12345678-1234-1234-1234-123456789abc", "٣",
    "1b2c6ec2", "@5f2050f6", "1234567d", "12345678b", "abcdef01", "0af7651916cd43dd8448eb211c80319c", "Client Error",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "05:15:00.123abc45678", "A1B2C3D4",
    "\n   at Acme.V2.Run(Int32 a)", "\n   at Acme.Run`1(x) in a.cs:line 4",
    '\n  File "/lib64/python3/a.py", line 4, in f',
    '\n  File "/usr/lib32/python3/a.py", line 4, in f', "\n    at f1 (/app/a1.js:10:5)", "\n--- 1 ---",
    "\nCaused by: x1",
)  # fmt: skip
VALUES: Final = f"'{'v' * 290}'\n" * 13
"""A long text of which the cause is short."""
GLUE: Final = st.sampled_from(("", " ", ": ", "=", "-", "(", "#", "."))


@st.composite
def descriptions(draw: st.DrawFn) -> list[str | None]:
    """Generate descriptions, and others that differ from them in digits and ids."""
    parts = st.tuples(st.sampled_from(WORDS) | st.text(max_size=5), GLUE)
    kinds = draw(st.lists(st.lists(parts, min_size=1, max_size=6), min_size=1, max_size=4))
    digits = draw(st.lists(st.text("0123456789", min_size=1, max_size=30), min_size=8, max_size=8))
    letters = draw(st.lists(st.text("abcdef", min_size=1, max_size=30), min_size=8, max_size=8))
    made: list[str | None] = [None]
    for kind in kinds:
        text = "".join(word + glue for word, glue in kind)
        made.append(text)
        for values, words in zip(digits, letters, strict=True):
            following, word = cycle(values), cycle(words)
            other = "".join(next(following) if "0" <= each <= "9" else each for each in text)
            made += [other, "".join(next(word) if "a" <= each <= "f" else each for each in other)]
            made.append(f"{made[-1]} {uuid.uuid5(uuid.NAMESPACE_OID, values)}")
    return made * 2


@settings(max_examples=rounds(25, 300))
@given(descriptions())
@example(["error 0xff", "error 1xff", "error 5xff"] * 10)
@example(["404 Client Error", "604 Client Error"] * 10)
@example(["at 05:15:00.123abc45678", "at 05:15:00.1a2abc45678"] * 10)
@example(["took 12345678d", "took 1234567ad", "took 1234567dd"] * 10)
@example(["at 12345678a://b", "at a1234567a://b"] * 10)
@example(["for utf8 it is late", "for utf7 it is late"] * 10)
@example([f"Late\n   at {each}(A.java:7)" for each in ("a12345cd", "12345acd", "2a345acf")] * 10)
@example([f"late\n at app@{each}/x.Y.z(Y.java)" for each in ("1a2b3c4d", "2a2b3c4d")] * 10)
@example(["x" * cut + each for cut in range(488, 502) for each in (" 1a2b3c4d", " abcd3c4d", " 2bcd3c4d")])
@example(
    [f"{VALUES}'{'v' * cut}'{each}" for cut in range(274, 286) for each in (" 1a2b3c4d", " abcd3c4d", " 2bcd3c4d")]
)
def test_causes_by_form_are_those_of_each_description(said: list[str | None]) -> None:
    assert CauseReader().all(said) == [cause_of(each) for each in said]


def test_forms_stay_within_the_budget_of_time() -> None:
    ticks = iter(range(10_000))
    read = CauseReader(seconds=3, clock=lambda: next(ticks))
    causes = read.all([f"{'late ' * row}{row}" for row in range(100)])
    assert {each.text for each in causes[50:]} == {"(not read: the time for causes is spent)"}
