from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from sbnotebook.emulator.logs import clean_logger, log_limit


@pytest.fixture
def handler() -> Iterator[logging.StreamHandler[io.StringIO]]:
    """The lines of the logger ``example``."""
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("example")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def written(handler: logging.StreamHandler[io.StringIO]) -> io.StringIO:
    return handler.stream


def test_no_record_has_lines_or_commands_of_a_client(written: io.StringIO) -> None:
    log = clean_logger("example")
    log.warning("It says: %s", "a\nERROR b\r\x1b[2J\x9b\x00\u202ecba\u2028c\ud800")
    assert written.getvalue() == "It says: a\\nERROR b\\r\\x1b[2J\\x9b\\x00\\u202ecba\\u2028c\\ud800\n"


def test_a_record_is_cut(written: io.StringIO) -> None:
    clean_logger("example").warning("x" * 10**6)
    assert written.getvalue() == "x" * 1000 + "…\n"


def test_a_traceback_is_kept_and_cannot_be_mistaken(written: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError("told\n2026-11-22 CRITICAL by a client\x1b[2J" + "x" * 10**6)

    try:
        fail()
    except ValueError:
        clean_logger("example").exception("It failed.")
    lines = written.getvalue().splitlines()
    assert lines[0] == "It failed."
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(written.getvalue()) < 10_000
    assert "\x1b" not in written.getvalue()


def test_a_flood_is_cut_and_the_gap_is_named(handler: logging.StreamHandler[io.StringIO], written: io.StringIO) -> None:
    now = 0.0
    handler.addFilter(log_limit(lambda: now))
    log = logging.getLogger("example")
    for number in range(10_000):
        log.warning("line %d", number)
    assert written.getvalue().splitlines() == [f"line {number}" for number in range(200)]
    now = 25
    for _ in range(3):
        log.warning("later")
    assert written.getvalue().splitlines()[200:] == ["(9800 lines are left out here.) later", "later"]
    now += 10**6
    for _ in range(300):
        log.warning("much later")
    assert written.getvalue().count("much later") == 200
