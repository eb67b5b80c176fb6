"""Write the reference of Python from docstrings, as plain Markdown between two comments of a page.

``<!-- python sbnotebook.client.Entity -->`` begins the text about a class with its members, about a function, or about
a module with its names, and ``<!-- end -->`` ends it. If a colon follows the name, only the members after it are there.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache, cached_property
from itertools import groupby
from os.path import relpath
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType, UnionType
from typing import Any, Final, NamedTuple

from sphinx.pycode import ModuleAnalyzer

from sbnotebook.model.durations import duration_text

__all__ = ["PYTHON", "python_page", "targets"]

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PYTHON: Final = (
    "reference/errors.md",
    *sorted(str(path.relative_to(DOCS)) for path in (DOCS / "reference" / "python").glob("*.md")),
)
"""The pages that have such comments."""
_MARK: Final = re.compile(
    r"^<!-- python (?P<name>[\w.]+)(?P<only>:[\w, ]*)? -->\n(?:.*?\n)??<!-- end -->$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^(#+) ", re.MULTILINE)
_SECTION: Final = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example)::?\n", re.MULTILINE)
_ITEM: Final = re.compile(r"^\*{0,2}([\w.]+): ", re.MULTILINE)
_ROLE: Final = re.compile(r":(\w+):`~?([\w.]+)`")
_CODE: Final = re.compile(r"``(.+?)``", re.DOTALL)
_DIRECTIVE: Final = re.compile(r" *# doctest:.*")
_TABLE: Final = re.compile(r"=+(?: +=+)+\n(.*)\n=+(?: +=+)+\n(.*)\n=+(?: +=+)+", re.DOTALL)
_PLAIN: Final = (bool, int, float, str, type(None))
_PROPERTY: Final = (property, cached_property)
_NOT_RUN: Final = "<!-- no-run: a part of a docstring -->\n"


class _Part(NamedTuple):
    """A class with its members, a function, or another name."""

    name: str
    value: Any
    only: list[str] | None = None

    @property
    def title(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def members(self) -> dict[str, Any]:
        """Return its documented methods and properties, without those of bases that have a part of their own."""
        if not isinstance(self.value, type):
            return {}
        others = [part.value for part in _all_parts() if part.value is not self.value]
        found: dict[str, Any] = {}
        for base in self.value.__mro__:
            if base.__module__.startswith("sbnotebook") and base not in others:
                for name, value in vars(base).items():
                    if _is_member(name, value) and (self.only is None or name in self.only):
                        found.setdefault(name, value)
        return found


def _is_member(name: str, value: Any) -> bool:
    is_ours = not name.startswith("_") and inspect.getdoc(value) is not None
    return is_ours and (inspect.isroutine(value) or isinstance(value, _PROPERTY))


def _parts(mark: re.Match[str]) -> list[_Part]:
    name, value = mark["name"], resolve_name(mark["name"])
    only = None if mark["only"] is None else re.findall(r"\w+", mark["only"])
    if not isinstance(value, ModuleType):
        return [_Part(name, value, only)]
    return [_Part(f"{name}.{each}", getattr(value, each)) for each in (value.__all__ if only is None else only)]


def _marks() -> Iterator[tuple[str, re.Match[str]]]:
    for path in PYTHON:
        yield from ((path, mark) for mark in _MARK.finditer((DOCS / path).read_text(encoding="utf-8")))


@cache
def _all_parts() -> list[_Part]:
    return [part for _, mark in _marks() for part in _parts(mark)]


@cache
def targets() -> dict[str, str]:
    """Return the place of each documented name, such as ``reference/python/entity.md#entitypeek``."""
    found: dict[str, str] = {}
    for path, mark in _marks():
        for part in _parts(mark):
            found[part.name] = f"{path}#{part.title.lower()}"
            for name, value in part.members.items():
                place = part.title if isinstance(value, _PROPERTY) else part.title + name
                found[f"{part.name}.{name}"] = f"{path}#{place.lower()}"
    return found


def python_page(path: str) -> str:
    """Return a page of PYTHON with the current docstrings in its parts."""
    text = _MARK.sub(lambda mark: f"{mark[0].splitlines()[0]}\n<!-- end -->", (DOCS / path).read_text(encoding="utf-8"))

    def written(mark: re.Match[str]) -> str:
        first, last = mark[0].splitlines()
        level = len(_HEADING.findall(text, 0, mark.start())[-1]) + 1
        return "\n\n".join([first, *_Writer(path, level).blocks(mark), last])

    return _MARK.sub(written, text)


class _Writer:
    """Writes parts of one page, with headings from a level on."""

    def __init__(self, path: str, level: int) -> None:
        self._path = path
        self._level = level
        self._owner = ""

    def blocks(self, mark: re.Match[str]) -> Iterator[str]:
        """Yield the blocks of the parts of a comment."""
        value = resolve_name(mark["name"])
        if isinstance(value, ModuleType):
            yield from self._docstring(inspect.getdoc(value) or "", {})
        for part in _parts(mark):
            yield from self._part(part)

    def _part(self, part: _Part) -> Iterator[str]:
        self._owner = part.name
        yield f"{'#' * self._level} `{part.title}`"
        if isinstance(part.value, type):
            yield from self._class(part)
        elif isinstance(part.value, UnionType):
            yield f"One of {', '.join(self._link(each.__name__) for each in part.value.__args__)}."
        elif callable(part.value):
            yield from self._function(part.title, part.value)
        else:
            module, _, name = part.name.rpartition(".")
            yield from self._paragraphs("\n".join(ModuleAnalyzer.for_module(module).find_attr_docs()["", name]))

    def _class(self, part: _Part) -> Iterator[str]:
        kind: type = part.value
        text = inspect.cleandoc(kind.__doc__ or "")
        parameters: dict[str, inspect.Parameter] = {}
        if "\nArgs:\n" in text or (is_dataclass(kind) and "\nAttributes:\n" not in text):
            signature = inspect.signature(kind)
            parameters = dict(signature.parameters)
            if parameters:
                yield f"`{_call(part.title, signature)}`"
        is_written = not text.startswith(f"{part.title}(")  # by the decorator of dataclasses
        bases = [each for each in kind.__bases__ if self._target(each.__name__) or issubclass(each, Exception)]
        if bases:
            yield f"A kind of {', '.join(self._link(each.__name__) for each in bases)}."
        yield from self._docstring(text if is_written else "", parameters)
        if issubclass(kind, Enum):
            yield "Values:"
            yield "\n".join(self._values(kind))
        if attributes := [*self._attributes(kind), *self._properties(part)]:
            yield "Attributes:"
            yield "\n".join(attributes)
        for name, value in part.members.items():
            if not isinstance(value, _PROPERTY):
                yield f"{'#' * (self._level + 1)} `{part.title}.{name}`"
                is_bound = isinstance(value, classmethod | staticmethod)
                yield from self._function(f"{part.title}.{name}" if is_bound else name, getattr(kind, name))

    def _values(self, kind: type[Enum]) -> Iterator[str]:
        texts = _texts_of_attributes(kind)
        for each in kind:
            value = f" (`{each.value!r}`)" if isinstance(each.value, str) else ""
            yield self._item(f"`{each.name}`{value}", texts.get(each.name, ""))

    def _attributes(self, kind: type) -> Iterator[str]:
        section = _sections(inspect.cleandoc(kind.__doc__ or "")).get("Attributes", "")
        texts = {} if issubclass(kind, Enum) else _texts_of_attributes(kind)
        for name, text in [*_items(section), *texts.items()]:
            yield self._item(f"`{name}`{_of_type(_annotation(kind, name))}", text)

    def _properties(self, part: _Part) -> Iterator[str]:
        for name, value in part.members.items():
            if isinstance(value, _PROPERTY):
                function: Any = value.fget if isinstance(value, property) else value.func
                returned = inspect.signature(function).return_annotation
                text = re.sub("^(?:Return|Tell) ", "", inspect.getdoc(value) or "")
                yield self._item(f"`{name}`{_of_type(returned)}", text)

    def _function(self, name: str, function: Any) -> Iterator[str]:
        signature = inspect.signature(function)
        if inspect.isfunction(function) and "self" in signature.parameters:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        returned = signature.return_annotation
        arrow = "" if returned in (None, "None", signature.empty) else f" → {self._type(returned)}"
        yield f"`{_call(name, signature)}`{arrow}"
        yield from self._docstring(inspect.getdoc(function) or "", dict(signature.parameters))

    def _docstring(self, text: str, parameters: dict[str, inspect.Parameter]) -> Iterator[str]:
        sections = _sections(text)
        yield from self._paragraphs(sections[""])
        items = [
            self._item(f"`{name}`{_of_type(parameters[name].annotation) if name in parameters else ''}", said)
            for name, said in _items(sections.get("Args", ""))
        ]
        items += [self._item(f"**{key.lower()}**", sections[key]) for key in ("Returns", "Yields") if key in sections]
        items += [
            self._item(f"**raises** {self._link(name)}", said) for name, said in _items(sections.get("Raises", ""))
        ]
        if items:
            yield "\n".join(items)
        if example := sections.get("Example"):
            yield from self._paragraphs(example if example.startswith(">>> ") else textwrap.indent(example, "    "))

    def _item(self, head: str, text: str) -> str:
        said = "\n\n".join(self._docstring(text, {}))
        return f"- {head}" + (f": {textwrap.indent(said, '  ').lstrip()}" if said else "")

    def _paragraphs(self, text: str) -> Iterator[str]:
        for kind, paragraphs in groupby(re.split(r"\n\n+", text.strip("\n")), _kind):
            if kind == "text":
                yield from (self._inline(each) for each in paragraphs if each not in {"", "::"})
                continue
            block = "\n\n".join(paragraphs)
            yield (
                f"```pycon\n{_DIRECTIVE.sub('', block)}\n```" if kind == "prompts" else _fenced(textwrap.dedent(block))
            )

    def _inline(self, text: str) -> str:
        text = _TABLE.sub(_as_table, re.sub(r"::$", ":", text))
        linked = _ROLE.sub(lambda role: self._link(role[2], call=role[1] in {"func", "meth"}), text)
        return _CODE.sub(r"`\1`", linked)

    def _type(self, annotation: Any) -> str:
        return self._link(_text(annotation))

    def _link(self, name: str, *, call: bool = False) -> str:
        shown = re.sub(r"^(?:[a-z_]+\.)+(?=\w)", "", name) + ("()" if call else "")
        target = self._target(name)
        if target is None:
            return f"`{name}{'()' if call else ''}`"
        page, _, anchor = target.partition("#")
        place = "" if page == self._path else relpath(page, Path(self._path).parent)
        return f"[`{shown}`]({place}#{anchor})"

    def _target(self, name: str) -> str | None:
        found = targets()
        near = f"{self._owner}.{name}"
        if name in found or near in found:
            return found.get(name) or found[near]
        known = found if "." in name else [part.name for part in _all_parts()]
        return next((found[each] for each in known if each.endswith(f".{name}")), None)


def _sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring, without their indentation; the text outside them has no name."""
    body, *rest = _SECTION.split(text)
    found = {"": body}
    for name, content in zip(rest[::2], rest[1::2], strict=True):
        inside, *after = re.split(r"\n(?=\S)", content, maxsplit=1)
        found[name] = textwrap.dedent(inside).strip("\n")
        found[""] += "".join(after)
    return found


def _items(section: str) -> list[tuple[str, str]]:
    _, *rest = _ITEM.split(section)
    lines = [(name, *text.split("\n", 1)) for name, text in zip(rest[::2], rest[1::2], strict=True)]
    return [(name, "\n".join([first, *map(textwrap.dedent, more)]).strip()) for name, first, *more in lines]


def _kind(paragraph: str) -> str:
    return "prompts" if paragraph.startswith(">>> ") else "code" if paragraph.startswith(" ") else "text"


def _fenced(code: str) -> str:
    try:
        ast.parse(code)
    except SyntaxError:
        return f"```text\n{code}\n```"
    return f"{_NOT_RUN}```python\n{code}\n```"


def _as_table(table: re.Match[str]) -> str:
    head, *rows = [re.split(r" {2,}", row, maxsplit=1) for row in (table[1], *table[2].splitlines())]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _call(name: str, signature: inspect.Signature) -> str:
    """Return a call with all parameters, without types."""
    shown = [each.replace(annotation=each.empty, default=_Default.of(each)) for each in signature.parameters.values()]
    return f"{name}{inspect.Signature(shown)}"


class _Default(str):
    """The code of a default; an ellipsis takes the place of a long one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> Any:
        default = parameter.default
        if default is parameter.empty:
            return default
        if isinstance(default, Enum):
            return cls(f"{type(default).__name__}.{default.name}")
        if isinstance(default, timedelta):
            return cls(repr(duration_text(default)))
        return cls(repr(default) if isinstance(default, _PLAIN) else "…")


def _texts_of_attributes(kind: type) -> dict[str, str]:
    """Return the texts below the attributes of a class."""
    found = ModuleAnalyzer.for_module(kind.__module__).find_attr_docs()
    return {
        name: "\n".join(lines).strip()
        for (owner, name), lines in found.items()
        if owner == kind.__qualname__ and not name.startswith("_")
    }


def _annotation(kind: type, name: str) -> Any:
    found = [
        vars(base)["__annotations__"][name] for base in kind.__mro__ if name in vars(base).get("__annotations__", {})
    ]
    return found[0] if found else None


def _of_type(annotation: Any) -> str:
    return "" if annotation in (None, inspect.Parameter.empty) else f" (`{_text(annotation)}`)"


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
