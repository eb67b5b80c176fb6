"""Readable bodies: for any content, nothing is lost, hidden or slow."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.widgets.pretty import cut, hex_lines, json_layout, visible, weight, xml_layout

PLENTY = 400_000
DIGITS = "9" * 100_000 + ".000"

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(JSON)
def test_laid_out_json_says_the_same(value: object) -> None:
    layout = json_layout(json.dumps(value), PLENTY)
    assert (layout.is_cut, layout.fault) == (False, "")
    assert json.loads(layout.text) == value


def test_json_layout_keeps_numbers_and_repeated_names() -> None:
    text = f'{{"a": 1.10, "a": {DIGITS}, "b": 12345678901234567890, "c": [], "d": "x\\u0041,{{}}"}}'
    lines = json_layout(text, PLENTY).text.splitlines()
    assert lines[1:4] == ['  "a": 1.10,', f'  "a": {DIGITS},', '  "b": 12345678901234567890,']
    assert lines[4:6] == ['  "c": [],', '  "d": "xA,{}"']


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (r"Jos\u00e9 \u00C9", "José É"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d \ude00 \ud83dx\ude00", r"\ud83d \ude00 \ud83dx\ude00"),
        (r"\u202e \u0000 \u0022 \u005c", r"\u202e \u0000 \u0022 \u005c"),
        (r"\\u00e9 \\\u00e9 \n \/", "\\\\u00e9 \\\\é \\n \\/"),
    ],
)
def test_json_layout_shows_letters_in_place_of_escapes(sent: str, shown: str) -> None:
    assert json_layout(f'"{sent}"', PLENTY).text == f'"{shown}"'


def test_json_layout_of_very_deep_json_stops_at_the_limit() -> None:
    depth = 10 * sys.getrecursionlimit()
    layout = json_layout("[" * depth + "]" * depth, 50_000)
    assert layout.is_cut
    assert layout.text.startswith("[\n  [\n    [")
    assert 40_000 < weight(layout.text) <= 50_000


def test_layout_time_grows_with_the_length_of_the_text() -> None:
    # Looked at again from each of its quotes, it would take hours.
    layout = json_layout("[" * 10 * sys.getrecursionlimit() + '"' + '\\"' * 500_000, 10 * PLENTY)
    assert layout.is_cut or layout.text.endswith('\\"')


@pytest.mark.parametrize("text", ['{"a": }', '["a', '{"a"}', "[1 2]", '"\\', '{"a": 1}}', "[" * 50 + "]" * 49])
def test_what_is_no_json_is_told_with_its_place(text: str) -> None:
    layout = json_layout(text, PLENTY)
    assert layout.text == ""
    assert " in line 1, column " in layout.fault


def test_xml_is_laid_out_and_nothing_in_it_is_resolved() -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE a SYSTEM "file:///etc/passwd"><a b="1>2">&lol; <!-- c --><d>text</d><e/></a>'
    assert xml_layout(bomb, PLENTY).text == (
        '<?xml version="1.0"?>\n<!DOCTYPE a SYSTEM "file:///etc/passwd">\n<a b="1>2">&lol; \n  <!-- c -->\n'
        "  <d>text</d>\n  <e/>\n</a>"
    )


@pytest.mark.parametrize(
    "text", ["<a>", "<a></b>", "</a>", "<a", "<!--" * 1000, "<a b='" * 1000, "<" * 1000, "<a>&<b></a></b>"]
)
def test_what_is_no_xml_is_told(text: str) -> None:
    layout = xml_layout(text, PLENTY)
    assert layout.text == ""
    assert layout.fault


def test_long_values_are_cut_by_bytes_and_many_by_lines() -> None:
    cut_by_bytes = json_layout(f'["{"é" * 256_000}"]', 10_000)
    assert cut_by_bytes.is_cut
    assert 9_990 < weight(cut_by_bytes.text) <= 10_000
    cut_by_lines = json_layout(f"[{'1,' * 100_000}1]", PLENTY)
    assert cut_by_lines.is_cut
    assert len(cut_by_lines.text.splitlines()) <= 20_001
    beyond_what_is_looked_at = json_layout(f"[1{' ' * 2_000_000}", PLENTY)
    assert beyond_what_is_looked_at == ("[\n  1", True, "")


def test_every_character_is_visible() -> None:
    hidden = "a\x00\x1b[31m\x7f\u202eevil\u2066\u200b\ufeff\u2028\xa0\ud800\U000e0041\r\nb\tc\r"
    shown = visible(hidden)
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    assert shown == (
        "a⟨NUL⟩⟨ESC⟩[31m⟨DEL⟩⟨U+202E⟩evil⟨U+2066⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+2028⟩⟨U+00A0⟩⟨U+D800⟩⟨U+E0041⟩\nb\tc⟨CR⟩"
    )
    assert visible("Grüße, 数 🎉") == "Grüße, 数 🎉"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(2, 60))
def test_a_cut_takes_as_much_as_fits(text: str, most: int) -> None:
    shown, is_cut = cut(text, most)
    assert text.startswith(shown)
    assert weight(shown) <= most
    assert is_cut == (shown != text)
    if is_cut:
        assert weight(text[: len(shown) + 1]) > most


def test_hex_shows_offset_values_and_characters() -> None:
    lines = hex_lines(bytes(range(0x18, 0x18 + 24))).splitlines()
    assert lines == [
        "00000000  18 19 1a 1b 1c 1d 1e 1f  20 21 22 23 24 25 26 27  |........ !\"#$%&'|",
        "00000010  28 29 2a 2b 2c 2d 2e 2f                           |()*+,-./|",
    ]
    assert hex_lines(b"") == ""
