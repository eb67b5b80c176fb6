from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.analysis import page_columns
from sbnotebook.analysis.frames import arrow_schema
from sbnotebook.analysis.page_columns import array_of_flags, array_of_numbers, array_of_values

PEEK = """
import sys
from sbnotebook.client import connect
from sbnotebook.emulator import running
from sbnotebook.model import Message

with running() as emulator, connect(emulator.connection_string) as names:
    names.create_queue("first")
    queue = names.entity("first")
    queue.send([Message(body=b"%d" % n, subject="é" * n, application_properties={"n": n}) for n in range(40)])
    assert [message.body for message in queue.peek(show_progress=False)] == [b"%d" % n for n in range(40)]
    assert "pandas" not in sys.modules
    assert queue.purge(where="body_text < '2'", show_progress=False).apply(show_progress=False).settled == 12
    assert "pandas" not in sys.modules
"""
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(codec="utf-8")),
    "binary": st.binary(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "timestamp[us, tz=UTC]": st.datetimes(timezones=st.just(UTC)),
    "map<string, string>": st.dictionaries(st.text(st.characters(codec="utf-8")), st.none() | st.text("aé")),
}
ARRAY: Any = pa.array


@pytest.fixture(autouse=True, scope="module")
def without_pandas() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_columns, "_modules", {})
        yield


def test_the_first_peek_and_purge_of_a_process_load_no_pandas() -> None:
    ended = subprocess.run([sys.executable, "-c", PEEK], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


@given(st.data())
def test_values_become_the_same_array_as_by_arrow(data: st.DataObject) -> None:
    schema: Any = arrow_schema()
    kinds = {str(field.type): field.type for field in schema}
    name = data.draw(st.sampled_from(sorted(kinds)))
    values = data.draw(st.lists(st.none() | VALUES[name], max_size=20))
    made = array_of_values(values, kinds[name])
    made.validate(full=True)
    assert made.equals(ARRAY(values, type=kinds[name]))


@pytest.mark.parametrize(
    ("values", "kind"), [([2**70], pa.int64()), ([datetime(2026, 1, 1, tzinfo=UTC)], pa.string()), ([1], pa.string())]
)
def test_values_of_another_type_raise_what_arrow_raises(values: list[Any], kind: Any) -> None:
    with pytest.raises((pa.ArrowException, OverflowError, TypeError)):
        array_of_values(values, kind)


@given(st.lists(st.tuples(st.integers(0, 2**31), st.booleans()), max_size=20))
def test_numbers_and_flags_become_the_same_arrays(rows: list[tuple[int, bool]]) -> None:
    numbers, flags = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.bool_)
    assert array_of_numbers(numbers).equals(ARRAY(numbers))
    assert array_of_numbers(numbers, flags).equals(ARRAY(numbers, mask=flags))
    assert array_of_flags(flags).equals(ARRAY(flags))
