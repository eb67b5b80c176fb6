"""Bodies that name a charset or are packed, and such that lie about it."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import Symbol
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message
from sbnotebook.model.body import Marks, body_of_text, body_text
from sbnotebook.model.budget import Allowance
from sbnotebook.model.schema import message_from_row


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("utf-8", "utf-8"),
        ("UTF-8", "utf-8"),
        ('"utf-16"', "utf-16"),
        ("utf-16le", "utf-16-le"),
        ("ISO-8859-1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("us-ascii", "utf-8"),
    ],
)
def test_the_charset_that_is_named_is_used(charset: str, codec: str) -> None:
    text = "Grosse" if charset == "us-ascii" else "Größe"
    quoted = f'a/b; start-info="text/xml; charset=cp437"; charset={charset}'
    for content_type in (f"text/plain; charset={charset}", f"application/json;x=1; Charset={charset}", quoted):
        assert body_text(text.encode(codec), Marks(content_type=content_type)) == text
        marks = Marks(content_type=content_type)
        assert body_text(body_of_text(text, marks), marks) == text


@pytest.mark.parametrize(
    "charset",
    [
        *("", "nosuch", "rot13", "hex", "zip", "bz2", "unicode_escape", "raw_unicode_escape", "punycode", "idna"),
        *("mbcs", "undefined", "a" * 10_000, "\0", "utf-8\r\nX: y", "utf_7"),
    ],
)
def test_an_unknown_charset_is_ignored(charset: str) -> None:
    for body in (b"plain", b"\\u0041", b"68656c6c6f", b"xn--n3h"):
        assert body_text(body, Marks(content_type=f"text/plain; charset={charset}")) == body.decode()


def test_a_body_outside_its_charset_has_no_text() -> None:
    assert body_text("é".encode(), Marks(content_type="text/plain; charset=us-ascii")) is None
    assert body_text(b"\xd8", Marks(content_type="text/plain; charset=utf-16")) is None


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", ""])
def test_a_body_of_unknown_encoding_stays_as_it_is(encoding: str) -> None:
    assert body_text(b"plain text", Marks(content_encoding=encoding)) == "plain text"
    assert body_text(b"\xff\xff", Marks(content_encoding=encoding)) is None


def test_a_text_is_not_packed_in_an_encoding_that_is_not_known() -> None:
    assert body_text(zlib.compress(b"text"), Marks(content_encoding="br")) is None
    assert body_of_text("text", Marks(content_encoding="identity")) == b"text"
    with pytest.raises(ConfigurationError, match="cannot write a body in the encoding 'br': give its bytes"):
        message_from_row({"body_text": "text", "content_encoding": "br"})


@pytest.mark.parametrize(
    "fields",
    [
        {"application_properties": {"Content-Encoding": "gzip"}},
        {"application_properties": {"content-encoding": "GZIP"}},
        {"application_properties": {"compression-method": "GZip"}},
        {"application_properties": {"contentEncoding": Symbol("x-gzip")}},
        {"content_type": "application/gzip"},
        {"content_type": "application/x-gzip; charset=utf-8"},
        {"content_type": "application/json+gzip"},
        {"content_encoding": "x-gzip"},
        {},
    ],
    ids=str,
)
def test_gzip_is_recognised_by_any_mark_and_by_none(fields: dict[str, Any]) -> None:
    message = Message(body=gzip.compress(b'{"n": 1}', mtime=0), **fields)
    assert message.body_text == '{"n": 1}'
    assert message.with_changes(json={"n": 2}).body == gzip.compress(b'{"n": 2}', mtime=0)
    assert body_text(b'{"n": 1}', message.marks) == '{"n": 1}'


def test_several_members_of_gzip_are_one_text() -> None:
    assert Message(body=gzip.compress(b"one ") + gzip.compress(b"two")).body_text == "one two"


def test_zlib_without_a_mark_is_unpacked_where_it_is_whole() -> None:
    assert Message(body=zlib.compress(b"text")).body_text == "text"
    assert Message(body=zlib.compress(b"text")[:-1]).body_text is None


@pytest.mark.parametrize("value", ["High", 5, None, True, "sometimes"], ids=str)
def test_a_property_of_the_same_name_may_mean_something_else(value: Any) -> None:
    message = Message(body=b"text", application_properties={"compression": value})
    assert message.with_changes(body="new").body == b"new"


def test_a_packed_body_that_is_cut_off_is_shown_up_to_there() -> None:
    packed = gzip.compress(b"0123456789" * 100_000, mtime=0)
    text = body_text(packed[: len(packed) // 2], Marks(content_encoding="gzip"))
    assert text is not None
    assert text.startswith("0123456789")
    assert text.endswith(" bytes)")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_cut(encoding: str) -> None:
    bomb = body_of_text("é" * 150_000_000, Marks(content_encoding=encoding))
    tracemalloc.start()
    text = body_text(bomb, Marks(content_encoding=encoding))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text is not None
    assert len(text) <= 16 * len(bomb) + 30
    assert text.endswith("bytes)")
    assert peak < 200 * 1024 * 1024


def test_a_bomb_in_a_bomb_is_not_unpacked_twice() -> None:
    inner = gzip.compress(b"x" * 1000, mtime=0)
    assert body_text(gzip.compress(inner, mtime=0), Marks(content_encoding="gzip")) is None


def test_a_row_with_the_text_alone_is_packed_again() -> None:
    row = {"body_text": "Größe", "content_type": "text/plain; charset=utf-16le", "content_encoding": "gzip"}
    message = message_from_row(row)
    assert gzip.decompress(message.body) == "Größe".encode("utf-16-le")
    assert message.body_text == "Größe"
    with pytest.raises(ConfigurationError, match="The charset ascii of the body has no 'é'"):
        message_from_row({"body_text": "é", "content_type": "text/plain; charset=ascii"})


@given(st.binary(max_size=60), st.text(max_size=20), st.sampled_from([None, "gzip", "deflate"]))
def test_hostile_bodies_have_a_text_or_none(body: bytes, charset: str, encoding: str | None) -> None:
    text = body_text(body, Marks(content_type=f"text/plain; charset={charset}", content_encoding=encoding))
    assert text is None or isinstance(text, str)


def test_a_packed_body_is_cut_at_a_megabyte_or_16_times_its_size() -> None:
    megabyte = 1024 * 1024
    whole, longer = gzip.compress(b"x" * megabyte), gzip.compress(b"x" * (megabyte + 1))
    assert body_text(whole, Marks(content_encoding="gzip")) == "x" * megabyte
    assert body_text(longer, Marks(content_encoding="gzip")) == "x" * megabyte + "… (cut at 1,048,576 bytes)"
    large = gzip.compress(b"x" * 90_000_000)
    cut = 16 * len(large)
    assert cut > megabyte
    assert body_text(large, Marks(content_encoding="gzip")) == "x" * cut + f"… (cut at {cut:,} bytes)"


def test_the_packed_bodies_of_a_table_share_an_allowance() -> None:
    packed, allowance = gzip.compress(b"x" * 10_000), Allowance(500)
    free = 16 * len(packed)
    assert body_text(gzip.compress(b"x"), Marks(content_encoding="gzip"), allowance) == "x"
    assert allowance.left == 500
    cut = f"x… (cut at {free + 500:,} bytes)"
    assert str(body_text(packed, Marks(content_encoding="gzip"), allowance)).lstrip("x") == cut.lstrip("x")
    assert allowance.left == 0
    assert body_text(packed, Marks(content_encoding="gzip"), allowance) == "x" * free + f"… (cut at {free:,} bytes)"


def test_a_cut_end_of_a_character_is_left_out() -> None:
    packed = gzip.compress(b"x" + "é".encode() * 1024 * 1024)
    text = body_text(packed, Marks(content_encoding="gzip"))
    assert text == "x" + "é" * (512 * 1024 - 1) + "… (cut at 1,048,576 bytes)"


def test_a_content_type_is_read_up_to_200_characters() -> None:
    head = "text/plain; charset=latin-1; x="
    assert body_text(b"\xe9", Marks(content_type=head.ljust(200, "y"))) == "é"
    assert body_text(b"\xe9", Marks(content_type=head.ljust(201, "y"))) is None


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xef\xbb"])
def test_a_byte_order_mark_alone_is_no_text(mark: bytes) -> None:
    assert body_text(mark) is None
    assert body_text(b"\xff\xfea\x00") == "a"
    # With the first bytes of the mark of UTF-32, whose characters have four bytes each
    assert body_text(b"\xff\xfe\x00\x00a\x00") == "\x00a"
