"""Stack traces of .NET, Java, Python and Node: what is said in them, and where in the application it happened."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["Fault", "read_fault"]

_MOST: Final = 64 * 1024
"""Characters that are looked at; Service Bus keeps 4,096 of a description, forwarded properties may be longer."""
_MOST_LINE: Final = 500
_MOST_FRAME: Final = 200

_LINES: Final = re.compile(r"\r\n|\n|\r|\\r\\n|\\n|(?<=\S) {3}(?=at \S)")
"""Ends of lines, also where they were escaped, or where a trace of .NET was put on one line."""
# "at" in the languages that .NET speaks; Java and Node know English only.
_AT: Final = re.compile(r"\s*(?:at|bei|à|en|em|in|в|w|在|場所)\s+(?:async\s+)?(?:new\s+)?(\S.*)")
_PYTHON: Final = re.compile(r"\s*File \"([^\"]+)\", line \d+(?:, in (.+))?")
_PLACE: Final = re.compile(r"\(?((?:[A-Za-z]:)?[^\s():]+):\d+(?::\d+)?\)?$")
"""Node's ``file.js:10:5``."""
_NOISE: Final = re.compile(
    r"\s*(?:Traceback \(most recent call last\):?|\.\.\. \d+ (?:more|common frames omitted)|-{3,}.*-{3,}|[\s^~]*)\s*"
    r"|\s*(?:During handling of the above|The above exception was the direct).*|\s*\[CIRCULAR REFERENCE.*"
)
_CAUSED_BY: Final = re.compile(r"\s*Caused by: ")

_FRAMEWORKS: Final = (
    "System.", "Microsoft.", "Azure.", "Newtonsoft.", "MassTransit.", "NServiceBus.", "Polly.", "MediatR.", "Dapper.",
    "Npgsql.", "StackExchange.", "Castle.", "Grpc.", "AutoMapper.", "FluentValidation.", "Autofac.", "Serilog.",
    "lambda_method", "java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "com.azure.", "com.microsoft.",
    "com.fasterxml.", "com.google.", "org.springframework.", "org.apache.", "org.hibernate.", "org.slf4j.",
    "org.postgresql.", "com.zaxxer.", "reactor.", "io.netty.", "io.micrometer.", "kotlin.", "kotlinx.", "scala.",
    "akka.", "node:", "internal/",
)  # fmt: skip
_BUILT_IN: Final = ("(<anonymous>)", "(native)")
"""Node's places of what the language itself brings."""
_LIBRARY_PATHS: Final = (
    "/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen", "<string>", "/node_modules/",
    "node:", "internal/", "/azure-functions-host/", "/opt/python/",
)  # fmt: skip


class Fault(NamedTuple):
    """What a description says.

    Attributes:
        text: it, without the frames of stack traces.
        frame: the application's next to the fault; one of a library where there is no other, None without a trace.
    """

    text: str
    frame: str | None


class _Frame(NamedTuple):
    name: str
    is_library: bool


def read_fault(description: str) -> Fault:
    r"""Read a description that may hold a stack trace.

    Example:
        >>> read_fault("Boom: no tail\n   at System.Linq.First()\n   at Acme.Flights.<CheckAsync>d__4.MoveNext()")
        Fault(text='Boom: no tail', frame='Acme.Flights.CheckAsync')
    """
    said: list[str] = []
    frames: list[_Frame] = []
    in_python = False
    for long_line in _LINES.split(description[:_MOST]):
        line = long_line[:_MOST_LINE]
        python = _PYTHON.match(line)
        frame = _python_frame(python) if python else _frame(line)
        if frame is not None:
            frames.append(frame)
            in_python = python is not None
        elif in_python and line.startswith("    "):
            continue  # the line of code of the frame
        elif not _NOISE.fullmatch(line):
            in_python = False
            if _CAUSED_BY.match(line):
                frames.clear()  # the cause of the cause comes later, and is the nearer one
            said.append(line.strip())
    # Python names the frame next to the fault last.
    ordered = frames[::-1] if _PYTHON.search(description[:_MOST]) else frames
    return Fault(" ".join(said), _nearest(ordered))


def _nearest(frames: list[_Frame]) -> str | None:
    own = next((frame for frame in frames if not frame.is_library), None)
    return own.name if own else frames[0].name if frames else None


def _python_frame(match: re.Match[str]) -> _Frame:
    path, function = match[1].replace("\\", "/"), match[2] or "<module>"
    is_library = any(part in path for part in _LIBRARY_PATHS)
    return _Frame(f"{path.rpartition('/')[2]}:{function}"[:_MOST_FRAME], is_library)


def _frame(line: str) -> _Frame | None:
    match = _AT.fullmatch(line)
    if match is None:
        return None
    rest = match[1].replace("file://", "")
    place = _PLACE.search(rest)
    if place is not None and " in " not in rest and not rest.endswith((".java)", ".kt)")) and _is_node(rest, place):
        return _node_frame(rest, place)
    method, parenthesis, _ = rest.partition("(")
    name = _plain(method.strip()) if parenthesis else ""
    # A sentence may begin with "at", too: it has blanks.
    if "." not in name or " " in name:
        return None
    return _Frame(name, name.startswith(_FRAMEWORKS) or rest.endswith(_BUILT_IN))


def _is_node(rest: str, place: re.Match[str]) -> bool:
    # Java has no blank before its parenthesis, and a file without a folder in it.
    return " (" in rest or "/" in place[1] or "\\" in place[1] or place[1].startswith("node:")


def _node_frame(rest: str, place: re.Match[str]) -> _Frame:
    path = place[1].replace("\\", "/")
    function = re.sub(r" \[as [^\]]*\]", "", rest[: place.start()].strip())
    function = re.sub(r"^(?:Object|Module|Function|Array|Promise)\.", "", function)
    if not function or function == "<anonymous>":
        function = path.rpartition("/")[2]
    return _Frame(function[:_MOST_FRAME], any(part in f"/{path}" for part in _LIBRARY_PATHS))


@lru_cache(maxsize=1_000)
def _plain(method: str) -> str:
    """A method's name without what compilers add to it: it differs from build to build."""
    name = re.sub(r"^[\w.-]{1,60}@?[\w.-]{0,40}/{1,2}(?=\w)", "", method)  # Java's module or class loader
    name = re.sub(r"\[[^\]]*\]|`\d+", "", name)  # .NET's type arguments
    name = re.sub(r"<(\w+)>g__(\w+)\|[\d_]+", r"\1.\2", name)  # local functions
    name = re.sub(r"(?:<>c(?:__DisplayClass[\d_]+)?[.+])+", "", name)  # closures
    name = re.sub(
        r"<{1,2}(\w*)>[db]__[\d_]+(?:>d(?:__\d+)?)?(?:\.MoveNext)?", r"\1", name
    )  # asynchronous methods and lambdas
    name = re.sub(r"lambda\$(\w+)\$\d+", r"\1", name)
    name = re.sub(r"\$\$(?:Lambda|EnhancerBy|FastClassBy|SpringCGLIB)[\w$/]*", "", name)
    return re.sub(r"\$\d+(?=[.$]|$)", "", name)[:_MOST_FRAME].strip(".+")
