"""Complete the arguments of magics: entity paths, options and their values, columns, and the user's variables."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from sbnotebook.analysis.descriptions import TRACE_COLUMNS
from sbnotebook.analysis.masks import MASKED_COLUMNS
from sbnotebook.client import Namespace
from sbnotebook.magics.arguments import VERBS, WORD
from sbnotebook.model import Report
from sbnotebook.model.schema import COLUMNS
from sbnotebook.settlement import EntityCounts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current


_LINE: Final = re.compile(r"(?:.*[\s=])?%{1,2}sb(?:_|\s+)(?P<verb>\w+)\s+(?P<rest>.*)", re.DOTALL)
_VERB: Final = re.compile(r"(?:.*[\s=])?%{1,2}sb\s+(?P<verb>\w*)", re.DOTALL)
_REMEMBERED: Final = 60.0
"""Seconds for which entity paths are kept: listing them takes a management operation for each."""
_PATIENCE: Final = 3.0
"""Seconds that a press of the tab key may take."""
_NAME_AT_END: Final = re.compile(r"(?<!\w)\w*+$")


class Completer:
    def __init__(self, shell: InteractiveShell, current: Current) -> None:
        self._shell, self._current = shell, current
        self._of: Namespace | None = None
        self._at = 0.0
        self._entities: list[EntityCounts] = []
        self._finders: Mapping[str, Callable[[], list[str]]] = {
            "ENTITY": self._paths,
            "DESTINATION": lambda: [str(each.address) for each in self._listed() if each.kind != "subscription"],
            "REPORT": lambda: [*self._variables(lambda value: isinstance(value, Report)), *self._paths()],
            "FUNCTION": lambda: self._variables(callable),
            "NAME": lambda: self._variables(lambda _: True),
            "TARGET": lambda: ["emulator", "env:", "secret:"],
            "DURATION": lambda: ["30s", "5m", "1h", "1d"],
            "PATH": lambda: ["$.", "application_properties.", *MASKED_COLUMNS],
            "EXPRESSION": lambda: [*(column.name for column in COLUMNS), "body_json", *TRACE_COLUMNS],
        }

    @context_matcher(identifier="sbnotebook.magics")
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return the completions at the cursor; where there are some, IPython offers no others.

        One of IPython's matchers, see the documentation of its module IPython.core.completer.
        """
        if typed := _VERB.fullmatch(context.text_until_cursor):
            verbs = [SimpleCompletion(each) for each in VERBS if each.startswith(typed["verb"])]
            return {"completions": verbs, "matched_fragment": typed["verb"], "suppress": True, "ordered": True}
        match = _LINE.fullmatch(context.text_until_cursor)
        magic: Any = self._shell.find_line_magic(f"sb_{match['verb']}") if match else None
        if match is None or magic is None:
            return {"completions": []}
        before, word, is_quoted = _place(match["rest"])
        is_option = word.startswith("-") and not is_quoted
        candidates = _options(magic.parser) if is_option else self._candidates(magic.parser, before)
        found = [SimpleCompletion(each) for each in candidates if each.lower().startswith(word.lower())]
        # The word as we see it: IPython would end one at the dollar of orders/$dlq.
        return {"completions": found, "matched_fragment": word, "suppress": True, "ordered": True}

    def _candidates(self, parser: Any, before: Sequence[str]) -> list[str]:
        wanted = _argument_after(parser, before)
        if wanted is None:
            return _options(parser)
        return list(wanted.choices) if wanted.choices else self._finders.get(wanted.metavar, list)()

    def _variables(self, wanted: Callable[[Any], bool]) -> list[str]:
        hidden = self._shell.user_ns_hidden
        names = ((name, value) for name, value in self._shell.user_ns.items() if not name.startswith("_"))
        return sorted(name for name, value in names if name not in hidden and wanted(value))

    def _paths(self) -> list[str]:
        found: list[str] = []
        for each in self._listed():
            found += [str(each.address)] if each.kind == "topic" else [str(each.address), str(each.address.dead_letter)]
        return found

    def _listed(self) -> list[EntityCounts]:
        """Return the entities of the current connection, listed at most once a minute."""
        namespace = self._current.namespace if self._current.is_connected else None
        if namespace is not self._of or time.monotonic() - self._at > _REMEMBERED:
            self._of, self._at, self._entities = namespace, time.monotonic(), []
            if namespace is not None:
                # In a thread, so that a service that does not answer does not block the keyboard.
                asking = threading.Thread(target=self._ask, args=(namespace,), daemon=True)
                asking.start()
                asking.join(_PATIENCE)
        return self._entities

    def _ask(self, namespace: Namespace) -> None:
        try:
            found = namespace.entities()
        except Exception:  # noqa: BLE001 (without the right to list entities, or without a network, there is nothing to offer)
            return
        if namespace is self._of:
            self._entities = found


def _place(text: str) -> tuple[Sequence[str], str, bool]:
    """Return the words before the cursor, the typed part of the one at it, and whether that is within quotes."""
    words: list[str] = []
    for match in WORD.finditer(text):
        if match["open"] is not None:
            last = _NAME_AT_END.search(match["open"])
            before = [*words, match[1].removesuffix("=")] if match[1] else words
            return before, last[0] if last else "", True
        words.append(match[0])
    if not words or text[-1].isspace():
        return words, "", False
    return words[:-1], words[-1], False


def _options(parser: Any) -> list[str]:
    return [each for each in parser._option_string_actions if each.startswith("--")]  # noqa: SLF001


def _argument_after(parser: Any, words: Sequence[str]) -> Any:
    """Return the argument of a magic that follows these words; None when only options can follow."""
    positional = [each for each in parser._actions if not each.option_strings]  # noqa: SLF001
    pending = None
    for word in words:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)  # noqa: SLF001
            pending = option if option is not None and option.nargs != 0 else None
        elif positional and positional[0].nargs not in ("*", "+"):
            positional.pop(0)
    return pending or next(iter(positional), None)
