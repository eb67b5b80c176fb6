"""Each option of the client has the same default in every call that has the option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

from sbnotebook.settlement import AsyncEntity, AsyncNamespace

EVERYWHERE: Final = {
    "abandon_rest": False,
    "archive": True,
    "archived": True,
    "from_sequence_number": 1,
    "include_unknown": False,
    "journalled": True,
    "max_in_flight": "auto",
    "resend_unknown": False,
}
"""The defaults that are yes or no, or another word, by option."""


def methods() -> Iterator[Callable[..., Any]]:
    for kind in (AsyncEntity, AsyncNamespace):
        yield from (function for _, function in inspect.getmembers(kind, inspect.isfunction))


def test_an_option_has_its_default_in_each_method() -> None:
    found = [
        (method, name, each.default)
        for method in methods()
        for name, each in inspect.signature(method).parameters.items()
        if name in EVERYWHERE and each.default is not inspect.Parameter.empty
    ]
    assert {name for _, name, _ in found} == EVERYWHERE.keys()
    for method, name, default in found:
        # In a dict, True and 1 would be the same.
        assert repr(default) == repr(EVERYWHERE[name]), f"{method.__qualname__}: {name}"
