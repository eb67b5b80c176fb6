from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from sbnotebook.model import BodyType, Message, body_decoders
from sbnotebook.model.body import body_text, is_usually_utf8

MODULE = """
def order(body, content_type):
    return "order " + body[1:].decode() if body[:1] == b"\\x01" else None

def failing(body, content_type):
    raise ValueError(f"no {body!r}\\x1b[31m")

def numeric(body, content_type):
    return 5

def by_type(body, content_type):
    return "typed" if content_type == "application/x-mine" else None
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs decoders as a package would: entry points that import a module."""
    (tmp_path / "acme_bodies.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def use(*names: str, module: str = "acme_bodies") -> None:
        points = EntryPoints(EntryPoint(name, f"{module}:{name}", "sbnotebook.body_decoders") for name in names)
        monkeypatch.setattr(body_decoders, "entry_points", points.select)
        clear()

    def clear() -> None:
        body_decoders._decoders.cache_clear()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        body_decoders._warned_of.clear()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001

    yield use
    clear()


def test_a_decoder_gives_the_text_of_its_own_bodies(install: Install) -> None:
    install("order", "by_type")
    assert body_text(b"\x01UA", BodyType.DATA) == "order UA"
    assert body_text(b"UA", BodyType.DATA) == "UA"
    assert Message(body=b"\xff", content_type="application/x-mine").body_text == "typed"
    assert Message(body=b"\xff").body_text is None


def test_texts_are_usually_utf8_without_decoders(install: Install) -> None:
    types = (None, "application/json", "text/plain; charset=utf-8", "text/plain; charset=latin-1")
    assert [is_usually_utf8(each) for each in types] == [True, True, True, False]
    install("order")
    assert not any(map(is_usually_utf8, types))


def test_the_first_that_knows_it_wins_in_the_order_of_the_names(install: Install) -> None:
    install("order", "by_type")
    assert body_text(b"\x01UA", BodyType.DATA, "application/x-mine") == "typed"


def test_a_failing_decoder_is_told_of_once_and_passed_over(install: Install) -> None:
    install("failing", "order")
    with pytest.warns(RuntimeWarning, match=r"'failing' failed and is passed over: ValueError: no b'.*·\[31m$"):
        assert body_text(b"\x01UA", BodyType.DATA) == "order UA"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert body_text(b"\x01UA", BodyType.DATA) == "order UA"


def test_a_long_error_of_a_decoder_is_cut_at_200_characters(install: Install) -> None:
    install("failing")
    with pytest.warns(RuntimeWarning) as warned:
        body_text(b"x" * 500, BodyType.DATA)
    assert len(str(warned[0].message).partition("passed over: ")[2]) == 200


def test_a_decoder_that_gives_no_text_is_passed_over(install: Install) -> None:
    install("numeric")
    with pytest.warns(RuntimeWarning, match="it gave int, not str or None"):
        assert body_text(b"text", BodyType.DATA) == "text"


def test_a_decoder_that_cannot_be_imported_is_passed_over(install: Install) -> None:
    install("order", module="no_such_module")
    with pytest.warns(RuntimeWarning, match="'order' failed.*ModuleNotFoundError"):
        assert body_text(b"text", BodyType.DATA) == "text"


def test_without_decoders_nobody_is_asked(install: Install) -> None:
    install()
    assert body_text(b"text", BodyType.DATA) == "text"
