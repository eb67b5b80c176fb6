"""Keys that were typed into a cell, kept out of IPython's history and its tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.model.secret_texts import scrub

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


_LITERAL: Final = re.compile(
    r'(?<!\\)(?:"""(?P<a>(?:\\.|(?!""")[^\\])*+)"""|' + r"'''(?P<b>(?:\\.|(?!''')[^\\])*+)'''|"
    r'"(?P<c>(?:\\.|[^"\\\n])*+)"|' + r"'(?P<d>(?:\\.|[^'\\\n])*+)')",
    re.DOTALL,
)
_LITERAL_OR_CALL: Final = re.compile(rf"{_LITERAL.pattern}|Credential\s*\(|[()]", re.DOTALL)
_JOINED: Final = re.compile(r"(?:format|join|[\s+\\()\[\],.%rbfuRBFU]|#[^\n]*\n)*+")
"""The code between the literals of one text: nothing, +, str.join, str.format or %."""
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{43}=(?![A-Za-z0-9+/=])")
"""A shared access key of Service Bus: 32 bytes in base64."""
_INPUT: Final = re.compile(r"_i+|_i\d+")
"""IPython's variables with the input."""
_LOOKED_BACK: Final = 400
"""Characters; the name of a key and the key are shorter."""


def keep_secrets_out(shell: InteractiveShell) -> None:
    """Keep keys out of a shell's history and out of its tracebacks.

    A cell is in the history before it runs, so it is cleaned on the way there: ``In``, ``_i``, ``%history`` and the
    history file never have the key. Earlier cells of this session are cleaned now.
    """
    untyped: Any = shell
    show = untyped._showtraceback  # noqa: SLF001 (IPython: "Subclasses may override this")

    def show_traceback(kind: Any, error: Any, lines: list[str]) -> None:
        show(kind, error, [_without_named_keys(line) for line in lines])

    untyped._showtraceback = show_traceback  # noqa: SLF001
    manager: Any = shell.history_manager
    if manager is None:
        return
    store = manager.store_inputs

    def store_inputs(line_num: int, source: str, source_raw: str | None = None) -> None:
        store(line_num, without_keys(source), None if source_raw is None else without_keys(source_raw))

    manager.store_inputs = store_inputs
    _clean_session(manager, untyped.user_ns)


def without_keys(source: str) -> str:
    """Return a cell without the keys of connection strings and the literals of credentials.

    A key may be spread over several literals. A key of its own is known by its length of 44 characters.
    """
    parts: list[str] = []
    end = 0
    for first, last in sorted({*_spread_over_literals(source), *_of_credentials(source)}):
        parts += [source[end:first], "***"]
        end = last
    return _without_named_keys("".join([*parts, source[end:]]))


def _without_named_keys(text: str) -> str:
    return _KEY.sub("***", scrub(text))


def _spread_over_literals(source: str) -> Iterator[tuple[int, int]]:
    """Yield where the literals are that hold a part of a key which begins in the literal before."""
    before, end = "", 0
    for literal in _LITERAL.finditer(source):
        span = literal.span(literal.lastgroup or 0)
        text = source[slice(*span)].replace("\\\n", "")
        if _JOINED.fullmatch(source, end, literal.start()) is None:
            before = ""
        is_cut = len(text) < span[1] - span[0]
        if _without_named_keys(before + text) != _without_named_keys(before) + (
            text if is_cut else _without_named_keys(text)
        ):
            yield span
        before, end = (before + text)[-_LOOKED_BACK:], literal.end()


def _of_credentials(source: str) -> Iterator[tuple[int, int]]:
    """Yield where the literals are that a credential is made with."""
    depth = begun = 0  # how deep in parentheses, and where the credential's own began
    for token in _LITERAL_OR_CALL.finditer(source):
        if token.lastgroup is not None:
            if begun:
                yield token.span(token.lastgroup)
        elif token[0] == ")":
            depth = max(0, depth - 1)
            begun = begun if depth >= begun else 0
        else:
            depth += 1
            begun = begun or (depth if token[0] != "(" else 0)


def _clean_session(manager: Any, variables: dict[str, Any]) -> None:
    """Clean what this session typed before: in memory, in the user's variables and in the history file."""
    manager.writeout_cache()
    for number, (source, raw) in enumerate(zip(manager.input_hist_parsed, manager.input_hist_raw, strict=False)):
        clean = without_keys(source), without_keys(raw)
        if clean == (source, raw):
            continue
        manager.input_hist_parsed[number], manager.input_hist_raw[number] = clean
        if manager.db is not None and hasattr(manager.db, "execute"):
            with manager.db:
                manager.db.execute("PRAGMA secure_delete = ON")
                manager.db.execute(
                    "UPDATE history SET source = ?, source_raw = ? WHERE session = ? AND line = ?",
                    (*clean, manager.session_number, number),
                )
    for name in [name for name in variables if _INPUT.fullmatch(name)]:
        variables[name] = without_keys(str(variables[name]))
    for name in ("_i", "_ii", "_iii", "_i00"):
        setattr(manager, name, without_keys(getattr(manager, name)))
