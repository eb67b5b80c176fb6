"""Bodies as text by the decoders of other packages: Protobuf, Avro, or an application's own format.

Such a package names its decoders as entry points of the group ``sbnotebook.body_decoders``. Each is a function that
takes the body's bytes and the content type, and returns the text. It returns None for a body of another format. In
``pyproject.toml``::

    [project.entry-points."sbnotebook.body_decoders"]
    orders = "acme.messages:decode_order"

The first decoder that returns a text wins, in the order of their names. A decoder that fails is skipped, with one
warning for each decoder.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Final

_GROUP: Final = "sbnotebook.body_decoders"
_BodyDecoder = Callable[[bytes, str | None], str | None]
"""Takes the bytes of a body and its content type; gives its text, or None when the body is not its own."""

_SHOWN_OF_ERROR: Final = 200
_warned_of: Final = set[str]()


def decoded_by_plugin(body: bytes, content_type: str | None) -> str | None:
    """Return the text that the first decoder to know the body returns; None when there is none."""
    for name, decoder in _decoders():
        try:
            text = decoder(body, content_type)
        except Exception as error:  # noqa: BLE001 (a broken decoder must not hide the message)
            _warn_once(name, f"{type(error).__name__}: {error}")
            continue
        if isinstance(text, str):
            return text
        if text is not None:
            _warn_once(name, f"it gave {type(text).__name__}, not str or None")
    return None


def has_decoders() -> bool:
    return bool(_decoders())


@cache
def _decoders() -> tuple[tuple[str, _BodyDecoder], ...]:
    """Return the installed decoders; found once, because that reads a file of each package."""
    found: list[tuple[str, _BodyDecoder]] = []
    for entry in sorted(entry_points(group=_GROUP), key=lambda entry: entry.name):
        try:
            found.append((entry.name, entry.load()))
        except Exception as error:  # noqa: BLE001 (any package's import)
            _warn_once(entry.name, f"{type(error).__name__}: {error}")
    return tuple(found)


def _warn_once(name: str, why: str) -> None:
    if name in _warned_of:
        return
    _warned_of.add(name)
    # An error may quote the message.
    shown = "".join(character if character.isprintable() else "·" for character in why[:_SHOWN_OF_ERROR])
    warnings.warn(f"The body decoder {name!r} failed and is passed over: {shown}", RuntimeWarning, stacklevel=2)
