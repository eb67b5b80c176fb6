from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.analysis.descriptions import Cause, read_stack_trace, trace_lines

# Realistic traces are in causes/; test_groups.py reads them.


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("   at Acme.A.B(String c) in C:\\x\\A.cs:line 5", "Acme.A.B"),
        ("   at Acme.A.<B>d__4.MoveNext()", "Acme.A.B"),
        ("   at Acme.A.<>c.<B>b__4_0(Int32 n)", "Acme.A.B"),
        ("   at Acme.A.<>c__DisplayClass4_0.<<B>b__0>d.MoveNext()", "Acme.A.B"),
        ("   at Acme.A`2.B[T](List`1 l)", "Acme.A.B"),
        ("   at Acme.A.B[System.String, System.Int32](List`1 l)", "Acme.A.B"),
        ("   at Acme.A..ctor()", "Acme.A..ctor"),
        ("\tat com.acme.A.b(A.java:5)", "com.acme.A.b"),
        ("\tat com.acme.A$1.run(A.java:5)", "com.acme.A.run"),
        ("\tat com.acme.A.b(Native Method)", "com.acme.A.b"),
        ("\tat java.base@17.0.1/java.lang.Thread.run(Thread.java:833)", "java.lang.Thread.run"),
        ("\tat com.acme.A$$SpringCGLIB$$0.b(<generated>)", "com.acme.A.b"),
        ("    at async A.b (/app/a.js:1:2)", "A.b"),
        ("    at /app/a.js:1:2", "a.js"),
        ("    at new A (C:\\app\\a.js:1:2)", "A"),
        ("    at process.run (node:internal/process/task_queues:95:5)", "process.run"),
        ("    at handle (webpack-internal:///./src/a.js:1:2)", "handle"),
        ("   at Acme.A.B[System.String, Sys(List`1 l)", None),
        ('  File "/app/a.py", line 5, in b', "a.py:b"),
        ('  File "C:\\app\\a.py", line 5', "a.py:<module>"),
        ("at least five (5) of them", None),
        ("in the end (that is, today) it failed", None),
        ("at", None),
        ("at x", None),
    ],
)
def test_frame_names_are_the_same_in_each_build(line: str, frame: str | None) -> None:
    assert read_stack_trace(f"Boom\n{line}").frame == frame


def test_a_file_named_in_a_sentence_does_not_turn_the_frames_over() -> None:
    text = 'Boom, see File "a.log", line 5\n   at Acme.A.B()\n   at Acme.C.D()'
    assert read_stack_trace(text).frame == "Acme.A.B"


def test_lines_without_end_are_not_all_read() -> None:
    assert read_stack_trace("x\n" * 32_768).text.count("x x") < 2_500
    assert read_stack_trace("x\n" * 100 + "   at Acme.A.B()").frame is None


def test_lines_of_code_belong_to_the_frame_above_them() -> None:
    trace = """\
Traceback (most recent call last):
  File "/app/orders.py", line 3, in handle
    price(order)
  File "/venv/lib/python3.11/site-packages/prices.py", line 9, in price
    raise Missing
Missing: no price
  indented"""
    assert [is_library for _, is_library in trace_lines(trace)] == [False, False, False, True, True, False, False]
    assert "\n".join(line for line, _ in trace_lines(trace)) == trace


def test_description_without_a_trace_is_its_text() -> None:
    assert read_stack_trace("Order 5\nhas no price") == Cause("Order 5 has no price", None)
    assert read_stack_trace("") == Cause("", None)


def test_library_frame_is_named_without_an_own_frame() -> None:
    assert read_stack_trace("x\n   at System.A.B()\n   at System.C.D()").frame == "System.A.B"
    assert read_stack_trace("x\n   at System.A.B()\n   at Acme.C.D()\n   at Acme.E.F()").frame == "Acme.C.D"


@given(
    st.text() | st.lists(st.sampled_from(["   at ", "A.b", "(", ")", "\n", 'File "', ":1:2", "<", ">"])).map("".join)
)
def test_any_text_is_read(text: str) -> None:
    fault = read_stack_trace(text)
    assert fault.frame is None or len(fault.frame) <= 200
