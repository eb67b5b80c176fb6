"""Write the synchronous twins of the asynchronous verbs: ``python -m scripts.sync_twins`` (``make format`` runs it).

Each class ``AsyncX`` of ``sbnotebook/client/async_*.py`` has a twin ``X`` in the module of the same name without
``async_``. A method of the twin has the same signature and docstring, in the words of synchronous code, and runs the
method of its twin on the background loop.
"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CLIENT: Final = Path(__file__).resolve().parents[1] / "sbnotebook" / "client"
# Alone: its package imports what this writes.
VERBS: Final[dict[str, Any]] = runpy.run_path(str(CLIENT / "verbs.py"))
# Each module, and its classes.
MODULES: Final = {
    "namespace": ("Namespace", "NamespaceCopy"),
    "entity": ("Entity",),
    "batch": ("LockedBatch", "LockedSession", "DeferredMessages"),
    "plan": ("Plan", "Running", "Processing"),
}
# Modules whose classes are written in several asynchronous ones.
PARTS: Final = {"namespace": ("namespace", "namespace_copy")}
APART: Final = {"NamespaceCopy": "namespace_copy"}
HOMES: Final = {name: module for module, classes in MODULES.items() for name in classes}
# Class methods of the asynchronous classes that are functions of the synchronous package.
FUNCTIONS: Final = {"Namespace.connect": "connect", "NamespaceCopy.read": "read_copy"}
# Classes that code outside makes of other parts, as their twins are made.
MADE: Final = ("Namespace",)
# Properties that only the loop's thread may read.
ON_LOOP: Final = ("Running.report", "Processing.report")
DUNDERS: Final = ("__len__", "__iter__", "__getitem__", "__repr__", "_repr_html_", "_table", "_with")
HEADER: Final = '"""{}\n\nDo not edit: ``make format`` writes this file from async_{}.py.\n"""'
_CONTEXT_MANAGER: Final = """def __enter__(self) -> Self:
    return self

def __exit__(
    self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    run(self.asynchronous.__aexit__, kind, error, trace)
"""
_ASYNC: Final = re.compile(rf"\bAsync({'|'.join(HOMES)})\b")
_WORDS: Final = (
    (re.compile(r"(?<!\w)\(await ((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)(?=[.\[])"), r"\1"),
    (re.compile(r"\bawait AsyncNamespace\.connect\("), "connect("),
    (re.compile(r"\bawait AsyncNamespaceCopy\.read\("), "read_copy("),
    (re.compile(r"\basync (with|for) "), r"\1 "),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAsyncIterator\b"), "Iterator"),
    (_ASYNC, r"\1"),
    (re.compile(":meth:`connect`"), ":func:`connect`"),
    (re.compile(r" With\s+``await``, the CancelledError has it\."), ""),
)


def main() -> None:
    """Write the modules."""
    for module in MODULES:
        (CLIENT / f"{module}.py").write_text(twin_module(module), encoding="utf-8")


def twin_module(module: str) -> str:
    """Return the text of the synchronous module of this name."""
    paths = [CLIENT / f"async_{part}.py" for part in PARTS.get(module, (module,))]
    tree, *others = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    tree.body += [each for other in others for each in other.body]
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    body = [_class(classes[f"Async{name}"], name, classes) for name in MODULES[module]]
    functions = [
        _function(classes, path, name) for path, name in FUNCTIONS.items() if HOMES[path.split(".")[0]] == module
    ]
    docstring = HEADER.format(_said(ast.get_docstring(tree) or "").splitlines()[0], module)
    text = "\n\n\n".join([*body, *functions])
    return _formatted(
        "\n\n".join([docstring, "from __future__ import annotations", _imports(tree, module), text]), module
    )


def _imports(tree: ast.Module, module: str) -> str:
    """Return the imports of the asynchronous module with those of the twins; ruff removes those without a use."""
    own = [ast.unparse(each) for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    own = [line for line in own if "__future__" not in line and "sbnotebook.client.async_" not in line]
    guarded = [
        ast.unparse(each) for each in tree.body if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each)
    ]
    inside = [line for each in guarded for line in each.splitlines()[1:] if "sbnotebook.client.async_" not in line]
    typed = ["if TYPE_CHECKING:", *inside] if inside else []
    twins = [
        f"from sbnotebook.client.async_{APART.get(name, home)} import Async{name}"
        for name, home in HOMES.items()
        if home == module
    ]
    aliases = [each for each in tree.body if isinstance(each, ast.AnnAssign) and "TypeAlias" in ast.unparse(each)]
    twins += [f"from sbnotebook.client.async_{module} import {ast.unparse(each.target)}" for each in aliases]
    others = [f"from sbnotebook.client.{home} import {name}" for name, home in HOMES.items() if home != module]
    run = "from sbnotebook.client.portal import in_turn, on_loop, run"
    verbs = "from sbnotebook.client.verbs import ShownAsPreview, Twin, twin_of"
    return "\n".join(
        [
            "from collections.abc import Iterator",
            "from sbnotebook.model.connection_strings import hidden",
            *own,
            *twins,
            *others,
            run,
            verbs,
            *typed,
        ]
    )


def _class(node: ast.ClassDef, name: str, classes: dict[str, ast.ClassDef]) -> str:
    bases = [_said(ast.unparse(base)) for base in node.bases]
    above = [base for base in bases if base in HOMES]
    made = [base for base in bases if base != "SdkNames"]
    if not above:
        made.append(f"Twin[Async{name}]")
    inherited = {each.name for base in above for each in _methods(classes[f"Async{base}"])}
    parts = [f"class {name}({', '.join(made)}):", _indented(_docstring(_class_docstring(node, name)))]
    parts += _init(node, name, above)
    for method in _methods(node):
        if method.name not in inherited:
            parts.append(_indented(_method(method, name)))
    return "\n".join(parts)


def _class_docstring(node: ast.ClassDef, name: str) -> str:
    text = _said(ast.get_docstring(node) or "")
    return text if name in MADE else re.sub(r"\n\nArgs:\n(?:    .*\n?)+", "", text).rstrip()


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            is_class_method = "classmethod" in map(ast.unparse, each.decorator_list)
            is_shown = not each.name.startswith("_") or each.name in DUNDERS
            if (is_shown or each.name == "__aenter__") and not is_class_method and each.name != "is_of":
                yield each


def _init(node: ast.ClassDef, name: str, above: list[str]) -> Iterator[str]:
    """Yield how the twin is kept, where that is not as in each other class."""
    kind = f"Async{name}"
    if name in MADE:
        init = next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
        first = init.args.args[1]
        given = ast.unparse(init.args).replace("Target", f"Target | {kind}", 1)
        yield _indented(f"def __init__({given}) -> None:")
        made = f"{kind}({_call(init.args)})"
        yield _indented(f"    super().__init__({first.arg} if isinstance({first.arg}, {kind}) else {made})\n")
    elif name == "DeferredMessages":
        yield _indented(f"def __init__(self, asynchronous: {kind}) -> None:")
        given = "asynchronous.to_arrow(), where_from=asynchronous.where_from, note=asynchronous.note"
        yield _indented(f"    super().__init__({given})\n    self.asynchronous = asynchronous\n")
    elif above:
        yield _indented(f"asynchronous: {kind}  # pyright: ignore[reportIncompatibleVariableOverride]\n")


def _method(method: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    decorators = [f"@{ast.unparse(each)}" for each in method.decorator_list]
    decorators = ["@property" if each == "@cached_property" else each for each in decorators]
    if method.name == "__aenter__":
        return _CONTEXT_MANAGER
    arguments, result = (
        _said(ast.unparse(method.args)),
        _said(ast.unparse(method.returns) if method.returns else "None"),
    )
    head = f"def {method.name}({arguments}) -> {result}:"
    if "@overload" in decorators:
        return "\n".join([*decorators, f"{head} ..."])
    if "@property" in decorators:
        call = f"self.asynchronous.{method.name}"
        call = f"on_loop(lambda: {call})" if f"{name}.{method.name}" in ON_LOOP else call
    elif isinstance(method, ast.AsyncFunctionDef):
        call = f"run({', '.join(filter(None, (f'self.asynchronous.{method.name}', _call(method.args))))})"
    else:
        call = f"self.asynchronous.{method.name}({_call(method.args)})"
    docstring = ast.get_docstring(method)
    names = [each.arg for each in (*method.args.args, *method.args.kwonlyargs)]
    lines = [*decorators, _marked(head, method)]
    if docstring and not method.name.startswith("_"):
        lines.append(_indented(_docstring(_said(VERBS["with_arguments"](docstring, names)))))
    noqa = (
        "  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]"
        if method.name.startswith("_") and not method.name.startswith("__")
        else ""
    )
    lines.append(f"    {_returned(call, result)}{noqa}\n")
    return "\n".join(lines)


def _marked(head: str, method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    is_long = len(method.args.args) + len(method.args.kwonlyargs) > 9  # noqa: PLR2004 (with self)
    return head.replace("(", "(  # noqa: PLR0913 (each option has a name)\n", 1) if is_long else head


def _returned(call: str, result: str) -> str:
    """Return the statement that returns the result of a call, as the twin of what it is."""
    if result == "None":
        return call
    listed = re.fullmatch(r"list\[(\w+)\]", result)
    if result in HOMES:
        return f"return {result}({call})"
    if listed and listed[1] in HOMES:
        return f"return [{listed[1]}(each) for each in {call}]"
    if result.startswith("Iterator[") and "__iter__" not in call:
        return f"return in_turn({call})"
    return f"return {call}"


def _call(arguments: ast.arguments) -> str:
    """Return the arguments with which a method calls that of its twin."""
    given = [_given(each) for each in arguments.args if each.arg not in ("self", "cls")]
    return ", ".join([*given, *(f"{each.arg}={_given(each)}" for each in arguments.kwonlyargs)])


def _given(argument: ast.arg) -> str:
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    if "Iterable[Async" in kind:
        return f"[each.asynchronous for each in {argument.arg}]"
    return f"twin_of({argument.arg})" if _ASYNC.search(kind) else argument.arg


def _function(classes: dict[str, ast.ClassDef], path: str, name: str) -> str:
    kind, _, verb = path.partition(".")
    method = next(
        each for each in classes[f"Async{kind}"].body if isinstance(each, ast.AsyncFunctionDef) and each.name == verb
    )
    arguments = ast.unparse(method.args).removeprefix("cls, ")
    lines = [f"def {name}({arguments}) -> {kind}:"]
    text = _said(ast.get_docstring(method) or "").replace(":meth:`save`", ":meth:`NamespaceCopy.save`")
    lines.append(_indented(_docstring(text)))
    if "Hidden" in arguments:
        lines.append("    target = hidden(target)")
    lines.append(f"    return {kind}(run(Async{kind}.{verb}, {_call(method.args)}))")
    return "\n".join(lines)


def _said(text: str) -> str:
    """Return a text in the words of synchronous code."""
    for pattern, word in _WORDS:
        while (made := pattern.sub(word, text)) != text:
            text = made
    return text


def _docstring(text: str) -> str:
    lines = text.splitlines()
    if len(lines) == 1:
        return f'"""{text}"""'
    return "\n".join([f'"""{lines[0]}', *lines[1:], '"""'])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.split("\n"))


def _formatted(text: str, module: str) -> str:
    ruff = Path(sysconfig.get_path("scripts"), "ruff")
    name = str(CLIENT / f"{module}.py")
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I,F811"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", name, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
