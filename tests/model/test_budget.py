from __future__ import annotations

from pathlib import Path

import pytest

from sbnotebook.amqp import decoding
from sbnotebook.model import budget

PAGE = Path(__file__).parents[2].joinpath("docs", "explanation", "threat-model.md").read_text(encoding="utf-8")
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    "row",
    [
        f"levels of AMQP values, and of JSON in `body_json` | {decoding.LEVELS} |",
        f"items of an AMQP value | {decoding.ITEMS:,}, and {decoding.UNUSUAL_KEYS:,} keys of a map",
        f"a packed body | {budget.UNPACKED_BYTES // MEGABYTE} MB or {budget.UNPACKED_TIMES} times its size, at most",
        f"all messages of a table share {budget.UNPACKED_BYTES_OF_TABLE // MEGABYTE} MB beyond 16 times |",
        f"JSON and XML in a panel, and JSON in `body_json` | {budget.PARSED_CHARACTERS:,} characters |",
        f"text that regular expressions examine | {budget.MATCHED_CHARACTERS:,} characters |",
        f"for its decoders, and for an expression | {budget.CAUSE_SECONDS_OF_TABLE:g} seconds each",
        f"pages that are peeked ahead | 8, and {budget.BYTES_AHEAD // MEGABYTE} MB as estimated",
    ],
)
def test_the_threat_model_states_each_limit(row: str) -> None:
    assert row in PAGE
