from __future__ import annotations

import numpy as np

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.rows import long_texts, matches

FILL = "x" * 300


def peeked(number: int, body: str, **properties: str) -> PeekedMessage:
    entity = EntityAddress.parse("orders")
    return PeekedMessage(
        entity=entity, sequence_number=number, body=body.encode(), application_properties={**properties}
    )


TABLE = to_arrow(
    [
        peeked(1, f"{FILL} Lufthansa 454", note="short"),
        peeked(2, "lufthansa"),
        peeked(3, f"{FILL} 454", trace=f"{FILL} LUFTHANSA"),
        PeekedMessage(entity=EntityAddress.parse("orders"), sequence_number=4, body=b"\xff\xfe\xff"),
    ]
)


def found(*words: str) -> list[list[int]]:
    bits = [np.frombuffer(each, np.uint8) for each in matches(long_texts(TABLE), words, len(TABLE))]
    return [np.flatnonzero(np.unpackbits(each, bitorder="little")).tolist() for each in bits]


def test_long_texts_are_only_columns_that_were_cut() -> None:
    assert list(long_texts(TABLE)) == ["body_text", "application_properties"]
    assert long_texts(to_arrow([peeked(1, "x" * 200)])) == {}
    assert long_texts(to_arrow([])) == {}


def test_matches_finds_each_word_in_any_case() -> None:
    assert found("lufthansa", "454", "nowhere") == [[0, 1, 2], [0, 2], []]


def test_words_are_texts_and_no_patterns() -> None:
    assert found(".*", "(") == [[], []]
    assert len(found(*["x"] * 50)) == 20
