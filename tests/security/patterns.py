"""Find every regular expression of sbnotebook, and write the texts that would slow each of them down."""

from __future__ import annotations

import ast
import importlib
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Pattern", "Writer", "cpu_time", "hidden_uses", "hostile_texts", "parts_of", "patterns"]

Writer: TypeAlias = Callable[[int], str]
"""Writes a text of a length."""

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = [path for folder in ("sbnotebook", "pyspark_servicebus") for path in sorted((_ROOT / folder).rglob("*.py"))]
_MODULES = {"re", "regex", "re2", "fnmatch", "sre_compile", "sre_parse"}
_ENGINES = re.compile(rf"\b(?:{'|'.join(_MODULES)})\b")
_AT_ITS_PLACE = {"match", "fullmatch"}
_METHODS = {*_AT_ITS_PLACE, "search", "sub", "subn", "split", "findall", "finditer"}
_PARSER: Any = importlib.import_module("re._parser")
_COMPILER: Any = importlib.import_module("re._compiler")
_LONGEST_PART = 24
_BETWEEN = ("", " ", "-", ".")


@dataclass(frozen=True)
class Pattern:
    """A regular expression, and how the code uses it.

    Args:
        module: the file, from the root of the project.
        name: of the module's constant.
        compiled: the expression.
        methods: those that the code calls.
    """

    module: str
    name: str
    compiled: Any  # of text or of bytes
    methods: frozenset[str]

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def run(self, text: str) -> None:
        """Use it as the code does: at all places of a text, at one after the other, or for all of it."""
        subject = text if isinstance(self.compiled.pattern, str) else text.encode("latin-1", "replace")
        if not self.methods or self.methods - _AT_ITS_PLACE:
            deque(self.compiled.finditer(subject), maxlen=0)
        if "match" in self.methods:
            place = -1
            while (match := self.compiled.match(subject, max(0, place))) and match.end() > place:
                place = match.end()
        if "fullmatch" in self.methods:
            self.compiled.fullmatch(subject)


# ---------------------------------------------------------------- finding them


@cache
def _trees() -> dict[Path, ast.Module]:
    """Return the modules that may use an engine of regular expressions, by their paths."""
    texts = {path: path.read_text("utf-8") for path in _SOURCES}
    return {path: ast.parse(text) for path, text in texts.items() if _ENGINES.search(text)}


def _constants(tree: ast.Module) -> dict[str, list[ast.Call]]:
    """Return the constants of a module that hold patterns, ``NAME: Final = re.compile(…)`` or a dictionary of some."""
    found: dict[str, list[ast.Call]] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
            if calls := [value for value in values if isinstance(value, ast.Call) and _is_of_re(value)]:
                found[node.target.id] = calls
    return found


def _is_of_re(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re" and node.func.attr != "escape"


def hidden_uses() -> list[str]:
    """Return the places where ``re`` is used without a constant, or imported in a way that hides its use."""
    hidden: list[str] = []
    for path, tree in _trees().items():
        constants = [call for calls in _constants(tree).values() for call in calls]
        for node in ast.walk(tree):
            is_hidden = isinstance(node, ast.Call) and _is_of_re(node) and node not in constants
            if isinstance(node, ast.ImportFrom):
                is_hidden = (node.module or "").partition(".")[0] in _MODULES
            if isinstance(node, ast.Import):
                is_hidden = any(
                    alias.name in _MODULES and (alias.name, alias.asname) != ("re", None) for alias in node.names
                )
            if is_hidden:
                hidden.append(f"{path.relative_to(_ROOT)}: {ast.unparse(node)}")
    return hidden


@cache
def patterns() -> list[Pattern]:
    """Return all patterns, with the methods of each that are called where it has its name."""
    found: list[Pattern] = []
    for path, tree in _trees().items():
        place = path.relative_to(_ROOT)
        for name in _constants(tree):
            module = importlib.import_module(".".join(place.with_suffix("").parts).removesuffix(".__init__"))
            held: Any = getattr(module, name)
            named: dict[str, Any] = held if hasattr(held, "values") else {"": held}
            methods = _methods_of(None if hasattr(held, "values") else name, tree)
            found += [Pattern(str(place), f"{name}[{key}]", each, methods) for key, each in named.items()]
    return found


def _methods_of(name: str | None, tree: ast.Module) -> frozenset[str]:
    """Return the methods that are called on a name, or on any name; those of a public one in all modules."""
    texts = [] if name is None or name.startswith("_") else [path.read_text("utf-8") for path in _SOURCES]
    nodes = [
        node for each in (tree, *(ast.parse(text) for text in texts if str(name) in text)) for node in ast.walk(each)
    ]
    # A pattern reads a text: a method with a constant, as ``text.split(";")``, is that of a text.
    of_texts = {
        node.func for node in nodes if isinstance(node, ast.Call) and isinstance((*node.args, None)[0], ast.Constant)
    }
    attributes = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node not in of_texts
    ]
    called = [node.attr for node in attributes if name in {None, ast.unparse(node.value)} and node.attr in _METHODS]
    uses = sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)
    # One that is also handed on may be searched for there.
    return frozenset({*called, "search"} if uses > len(called) else called)


# ---------------------------------------------------------------- hostile texts


def parts_of(pattern: re.Pattern[Any]) -> list[str]:
    """Return short texts that parts of a pattern match."""
    return _taken_apart(pattern)[0]


@cache
def _taken_apart(pattern: re.Pattern[Any]) -> tuple[list[str], list[str]]:
    """Return what the parts of a pattern match, and how a text begins before it comes to each part."""
    tree = _PARSER.parse(pattern.pattern, pattern.flags)
    parts: dict[str, None] = dict.fromkeys(["a", " ", "0", "-", "\n"])
    beginnings: dict[str, None] = {"": None}
    _walk(tree, tree.state, "", parts, beginnings)
    return [part for part in parts if 0 < len(part) <= _LONGEST_PART], list(beginnings)


def _walk(tree: Any, state: Any, before: str, parts: dict[str, None], beginnings: dict[str, None]) -> str:
    """Collect what the parts of a tree match, and return the shortest text that it matches."""
    text = ""
    for node in tree:
        beginnings.setdefault(before + text)
        part = _shortest(node, state, before + text, parts, beginnings)
        parts.setdefault(part)
        text += part
        parts.setdefault(text)
    return text


def _shortest(node: Any, state: Any, before: str, parts: dict[str, None], beginnings: dict[str, None]) -> str:
    name, value = str(node[0]), node[1]
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, _, inner = value
        return _walk(inner, state, before, parts, beginnings) * max(1, least)
    if name == "BRANCH":
        return next(iter([_walk(inner, state, before, parts, beginnings) for inner in value[1]]))
    if name in {"SUBPATTERN", "ATOMIC_GROUP"}:
        return _walk(value[-1] if name == "SUBPATTERN" else value, state, before, parts, beginnings)
    if name in {"ASSERT", "ASSERT_NOT"}:
        _walk(value[1], state, before, parts, beginnings)
        return ""
    if name in {"IN", "NOT_LITERAL", "ANY", "LITERAL"}:
        matching = _matching(node, state)
        parts.update(dict.fromkeys(matching[:3]))
        return matching[0] if matching else ""
    return ""


_POOL = [chr(place) for place in range(32, 127)] + list("\n\t\r\0é\u201c\u201d\u2018\u2019\u00ab\u00bb场在в")


def _matching(node: Any, state: Any) -> list[str]:
    if str(node[0]) == "LITERAL":
        return [chr(node[1])]
    one = _COMPILER.compile(_PARSER.SubPattern(state, [node]), 0)
    return [each for each in "a0 -" + "".join(_POOL) if one.fullmatch(each)]


def hostile_texts(pattern: re.Pattern[Any], chance: random.Random, count: int) -> Iterator[Writer]:
    """Yield what writes a beginning, parts of the pattern again and again, and an end that fits nowhere."""
    parts, beginnings = _taken_apart(pattern)
    ends = ("", "!\0", "\n")
    # Each part by itself, and with what ends a word between them; then parts at random.
    alone = [("", part + between, ends[1]) for part in parts for between in _BETWEEN]
    alone += [(beginnings[-1], part, "") for part in parts]
    chosen = chance.sample(alone, min(len(alone), count * 3 // 4))
    while len(chosen) < count:
        chosen.append((chance.choice(beginnings), "".join(chance.choices(parts, k=3)), chance.choice(ends)))
    for beginning, part, end in chosen:
        yield partial(_written, beginning, part, end)


def _written(beginning: str, part: str, end: str, length: int) -> str:
    return beginning + part * (max(0, length - len(beginning) - len(end)) // len(part)) + end


def cpu_time(work: Callable[[], object], *, times: int = 5, enough: float = 0.0) -> float:
    """Return the least processor time of several runs in seconds; no more runs once it is below ``enough``."""
    least = float("inf")
    for _ in range(times):
        started = time.thread_time()
        work()
        least = min(least, time.thread_time() - started)
        if least < enough:
            break
    return least
