"""Read the cause of a dead letter out of its description and its stack trace, and find its traces in telemetry.

A description is hostile input, so its length alone bounds the time. Every pattern passes over a text once: its parts
are short, or possessive, or end before the next place at which they could begin. Masking ends with the last character
of the cause that is shown, and sbnotebook reads at most 146 lines of 4,096 characters.

The trace of a message is in its application properties. ``traceparent`` has the form of W3C Trace Context,
https://www.w3.org/TR/trace-context/#traceparent-header, and so has ``Diagnostic-Id``, the older name of Azure's SDKs:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-end-to-end-tracing. The columns of
telemetry are those of https://learn.microsoft.com/azure/azure-monitor/reference/tables/appexceptions and
``appdependencies``.

Traces are not message columns: the properties already hold them without loss. They are read when they are needed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.page_columns import array_of_values
from sbnotebook.errors import DecisionError
from sbnotebook.model.budget import MATCHED_CHARACTERS
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement import query_logs

if TYPE_CHECKING:
    import pandas as pd

_kernels: Final[Any] = pc
PROPERTIES: Final = "application_properties"
TRACE_COLUMNS: Final = ("trace_id", "span_id")
"""The columns that ``where`` and SQL have besides the message columns."""
_NAMES: Final = ("traceparent", "Diagnostic-Id")
"""The properties, the better first, as the instructions for Azure's SDKs say."""
_FORM: Final = r"\A(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(?P<more>-.*)?\z"
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_MOST_OPERATIONS: Final = 1_000
_MOST_ROWS: Final = 10_000
_BEFORE: Final = timedelta(hours=1)
"""Operations of a message begin before it was enqueued."""
_MAX_TEXT: Final = 1_000
_ALIKE: Final = ("Kind", "Name", "Target", "Result", "Role")
_EACH: Final = ("OperationId", "TimeGenerated", "Items", "Text")
_QUERY: Final = """\
// {said}
let operations = dynamic([{operations}]);
let since = datetime({since});
let until = datetime({until});
union
    (AppExceptions
    | where TimeGenerated between (since .. until) and OperationId in (operations)
    | project TimeGenerated, OperationId, Kind = "exception", Name = ExceptionType, Target = Method, Result = "",
        Text = OuterMessage, Role = AppRoleName, Items = ItemCount),
    (AppDependencies
    | where TimeGenerated between (since .. until) and OperationId in (operations) and Success == false
    | project TimeGenerated, OperationId, Kind = "dependency", Name, Target, Result = ResultCode,
        Text = "", Role = AppRoleName, Items = ItemCount)
| top {rows} by TimeGenerated asc"""


def trace_columns(properties: Any) -> tuple[Any, Any]:
    """Return the trace ids and the span ids of a column of application properties, null where there is none."""
    found: list[tuple[Any, Any]] = []
    for name in _NAMES:
        parts = _kernels.extract_regex(_kernels.map_lookup(properties, _scalar(name), "first"), _FORM)
        version, trace, span, more = (_kernels.struct_field(parts, place) for place in range(4))
        is_right = _kernels.and_(_differs(trace, _NO_TRACE), _differs(span, _NO_SPAN))
        # Version ff is invalid, and only later versions than 00 may have more behind the flags.
        is_known = _kernels.or_(_differs(version, "00"), _kernels.equal(more, _scalar("")))
        is_right = _kernels.and_(is_right, _kernels.and_(is_known, _differs(version, "ff")))
        found.append(tuple(_kernels.if_else(is_right, part, _scalar(None)) for part in (trace, span)))
    (trace, span), (older_trace, older_span) = found
    is_new = _kernels.is_valid(trace)
    return _kernels.if_else(is_new, trace, older_trace), _kernels.if_else(is_new, span, older_span)


def _differs(column: Any, text: str) -> Any:
    return _kernels.not_equal(column, _scalar(text))


def _scalar(text: str | None) -> Any:
    # Arrow imports pandas to make one of a Python value.
    return array_of_values([text], pa.string())[0]


def traces_of(table: pa.Table) -> list[str | None]:
    return trace_columns(table.column(PROPERTIES))[0].to_pylist()


def kql_of(traces: Collection[str], first: datetime | None, until: datetime | None = None) -> str:
    """Return a Kusto query for the exceptions and failed dependencies of operations.

    Nothing that a sender wrote is in it but trace ids, which have 32 hexadecimal digits.
    """
    if not traces:
        raise DecisionError(
            "None of these messages has a trace: their senders set neither traceparent nor Diagnostic-Id. "
            "Turn on distributed tracing in the sender."
        )
    since, until = _times(first, until)
    shown = list(traces)[:_MOST_OPERATIONS]
    return _QUERY.format(
        said=f"Failures of {_counted(traces)}, in a Log Analytics workspace",
        operations=", ".join(f'"{trace}"' for trace in shown),
        since=since.strftime("%Y-%m-%dT%H:%M:%SZ"),
        until=until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        rows=_MOST_ROWS,
    )


def telemetry_of(
    causes: Mapping[str, Sequence[tuple[str, str | None]]],
    first: datetime | None,
    workspace: str,
    *,
    credential: Any = None,
    endpoint: str | None = None,
    until: datetime | None = None,
) -> pd.DataFrame:
    """Run the query of :func:`kql_of` for the traces of causes, and count what it finds by cause.

    A trace may have messages of several causes: its failures count for each of them.
    """
    import pandas as pd

    until = until or datetime.now(UTC)
    query = kql_of(causes, first, until)
    rows, problem = query_logs(workspace, query, _times(first, until), credential, endpoint)
    if len(causes) > _MOST_OPERATIONS or len(rows) >= _MOST_ROWS or problem:
        asked, limit = _counted(causes), f"Only the first {_MOST_ROWS:,} rows." if len(rows) >= _MOST_ROWS else ""
        warnings.warn(" ".join(filter(None, (f"The telemetry of {asked}.", limit, problem))), stacklevel=3)
    joined = [
        [*cause, *(scrub(str(row[name]), _MAX_TEXT) for name in _ALIKE), *(row[name] for name in _EACH)]
        for row in rows
        for cause in causes.get(row["OperationId"], ())
    ]
    keys = ["cause", "reason", *(name.lower() for name in _ALIKE)]
    frame = pd.DataFrame(joined, columns=pd.Index([*keys, *_EACH]))
    frame["Text"] = [scrub(str(text), _MAX_TEXT) for text in frame["Text"]]
    found: Any = frame.groupby(keys, dropna=False, sort=False)
    counted = found.agg(
        count=("Items", "sum"),
        operations=("OperationId", "nunique"),
        first=("TimeGenerated", "min"),
        last=("TimeGenerated", "max"),
        text=("Text", "first"),
    )
    return counted.reset_index().sort_values("count", ascending=False, ignore_index=True, kind="stable")


def _times(first: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    until = until or datetime.now(UTC)
    # A consumer may fail long after a message was enqueued, but not later than now.
    return (first or until).astimezone(UTC) - _BEFORE, until.astimezone(UTC)


def _counted(traces: Collection[str]) -> str:
    count = f"{len(traces):,} operation{'s' if len(traces) != 1 else ''}"
    return count if len(traces) <= _MOST_OPERATIONS else f"the first {_MOST_OPERATIONS:,} of {count}"


_MAX_CAUSE: Final = 200
_MOST_TEXT: Final = 4_096
"""Characters that are masked: the beginning of a cause identifies it."""
_MOST_LINE: Final = 500
_LEAST_LINES, _SHORT_LINE = 64, 28
"""Lines that are read of each text, and the characters for each line more; the lines of traces are longer."""
_MOST_FRAME: Final = 200


class Cause(NamedTuple):
    text: str
    frame: str | None


def cause_of(description: str | None) -> Cause:
    """Read a description without its stack trace, and mask ids, numbers, times, quoted values, paths and addresses.

    The same fault gives the same cause, in each run.
    """
    cause = read_stack_trace(_GUIDS.sub(NO_GUID, (description or "")[:MATCHED_CHARACTERS]))
    return Cause(masked(cause.text), cause.frame)


ANY_GUID: Final = r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
"""A pattern that RE2 and Python read alike. Before a description is read, each GUID becomes the same one."""
NO_GUID: Final = "11111111-1111-1111-1111-111111111111"
_GUIDS: Final = re.compile(ANY_GUID, re.ASCII)
DIGITS_TO_ONES: Final = bytes.maketrans(b"0123456789", b"1" * 10)
"""Makes the form of a description, given its bytes in UTF-8 without their GUIDs."""


def cause_of_form(form: str) -> Cause | None:
    """Return the cause of all descriptions of a form; None where their digits can make a difference.

    The patterns of this module look at a digit for being one, with few exceptions. So descriptions that differ in their
    digits have the same cause, unless a digit is left in it, or one of the exceptions may be there.
    """
    cause = read_stack_trace(form)
    if "1" in (cause.frame or "") or _LIBRARY_PATH_OF_FORM in form:
        return None
    if cause.text[_MOST_TEXT - 1 : _MOST_TEXT + 1].isalnum():  # the part of an id before the end may be no id
        return None
    said = cause.text[:_MOST_TEXT]
    text = masked(said)
    words = (word.casefold() for word in _WORD.findall(said))
    is_doubtful = "1" in text or _CODE_OF_FORM.search(said) or not _WORDS_OF_FORMS.isdisjoint(words)
    return None if is_doubtful else Cause(text, cause.frame)


def form_without_ids(form: bytes) -> bytes:
    """Return a form with the same digits and letters in all hexadecimal ids of a length, such as traces and addresses.

    An id that is not in a short line stays: a part of it may be where the text to read ends.
    """
    return b"\n".join(map(_line_without_ids, form.split(b"\n")))


@lru_cache(maxsize=4_000)
def _line_without_ids(line: bytes) -> bytes:
    return (
        line
        if len(line) > _MOST_LINE
        else _HEX_OF_FORM.sub(lambda found: (b"1a" if found[0][:1] == b"1" else b"a1").ljust(len(found[0]), b"1"), line)
    )


# ---------------------------------------------------------------- masks

# Words with digits that are not ids.
_WORDS: Final = frozenset({
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "base64", "utf8",
    "utf16", "utf32", "md5", "sha1", "sha256", "sha384", "sha512", "oauth2", "x509", "ipv4", "ipv6", "http2", "http3",
    "s3", "ec2", "k8s", "win32", "x64", "x86", "amd64", "arm64", "es6", "net6", "net7", "net8", "net9", "log4j",
    "slf4j", "h2", "db2", "oauth1", "iso8601", "rs256", "hs256",
})  # fmt: skip

_WORDS_OF_FORMS: Final = frozenset(word.encode().translate(DIGITS_TO_ONES).decode() for word in _WORDS)
_WORD: Final = re.compile(r"\w+")
_CODE_OF_FORM: Final = re.compile(r"1x[0-9a-fA-F]|111 (?:Client|Server)")
_HEX_OF_FORM: Final = re.compile(
    rb"(?<![^\s@\[(=#])(?=1{0,63}[a-f])(?=[a-f]{0,63}1)(?!1{1,63}[a-f]\b)[1a-f]{8,64}+(?![\w\x80-\xff:+-]|\.\S)"
)
"""A word that is an id with any digits and letters. Elsewhere, numbers, times and addresses continue in such a word.
Its last letter may be a unit."""
_LIBRARY_PATH_OF_FORM: Final = "/lib11/"
"""The forms of the exceptions among the patterns."""

_TIME: Final = r"\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?(?:\s?[AP]M\b)?"
_ZONE: Final = r"(?:\s?(?:Z|UTC|GMT)\b|\s?[+-]\d\d:?\d\d\b)?"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_GUID: Final = r"\{?\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-])\}?"
_MOMENT: Final = (
    rf"\b\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?{_ZONE})?"
    rf"|\b\d\d?[/.]\d\d?[/.]\d{{4}}(?:,?\s{_TIME})?{_ZONE}"
    rf"|\b(?:\d\d?\s)?{_MONTH}\s(?:\d{{1,2}},?\s)?\d{{4}}\b(?:\s{_TIME})?{_ZONE}"
    rf"|\b(?:\d{{1,4}}\.)?{_TIME}{_ZONE}"
)
_UNITS: Final = r"(?:[num]?s|sec|min|[hdkx]|[kmgt]i?b|bytes?|st|nd|rd|th)\b"

_CODES: Final = (
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|status(?:\s?code)?|(?:error|exit|result|return)\s?code|error|errno|SQLSTATE"
    r"|HRESULT|StatusCode|success)[\s:=#(\[]{1,3}(?:0x[0-9a-fA-F]{1,8}|[A-Z0-9]{0,3}\d{1,5})\b(?![.:,/-]\d)"
    r"|\b(?:ORA|TNS|PLS|SQL|ERR|CS|TS)-?\d{2,5}\b|\b[45]\d\d (?:Client|Server) Error\b"
    r"|\b0x8[0-9a-fA-F]{7}\b"
)
# An apostrophe inside a word is not a quotation mark. The next opening mark ends the search for a closing one.
_QUOTED: Final = (
    r"(?<!\w)'[^']{0,300}+(?:(?<=\w)'(?=\w)[^']{0,300}+){0,20}+'(?!\w)"
    r"|(?<!\\)\"[^\"\\]{0,300}+(?:\\.[^\"\\]{0,300}+){0,50}+\"|`[^`]{1,200}+`"
    r"|\u201c[^\u201c\u201d]{0,300}+\u201d|\u2018[^\u2018\u2019]{0,300}+\u2019|\u00ab[^\u00ab\u00bb]{0,300}+\u00bb"
)
# Named by what stands for them; the first that fits wins.
_PARTS: Final = (
    ("kept", r"[^\w{'\"`\u201c\u2018\u00ab\\/~+.-]++"),  # no part begins with these
    ("kept", _CODES),  # the numbers of faults tell causes apart
    ("url", r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"<>)\]]{1,2000}"),
    ("id", _GUID),
    ("time", _MOMENT),
    ("value", _QUOTED),
    ("email", r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,6}"),
    ("path", r"(?<!\w)[A-Za-z]:\\[^\s'\"<>|:*?]{1,400}|\\\\[\w.$-]{1,63}\\[^\s'\"<>|:*?]{1,400}"),
    ("path", r"(?<![\w/.<>])~?(?:/[\w.@%+~$-]{1,128}+){2,40}/?"),
    ("ip", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"),
    ("id", r"\b0x[0-9a-fA-F]+\b|\b(?=[a-fA-F]{0,63}\d)(?=\d{0,63}[a-fA-F])[0-9a-fA-F]{12,}\b"),
    ("n", rf"(?<![\w)\]])[-+]?\d+(?:[.,:]\d+)*(?:%|(?={_UNITS}))"),
    ("word", r"\b(?=[^\W\d]{0,99}\d)(?=\d{0,99}[^\W\d])\w+\b"),
    ("n", r"(?:(?<![\w)\]>])[-+])?\d+(?:[.,:]\d+)*"),
    ("kept", r"[^\W\d]++|."),  # inside of letters, no part begins
)
_ALL: Final = re.compile("|".join(f"(?P<{name}_{place}>{part})" for place, (name, part) in enumerate(_PARTS)))
# A reason is short and often a code: mask only the parts that cannot be part of a code.
_IN_REASONS: Final = re.compile(rf"{_GUID}|\b(?:\d{{4}}-\d\d-\d\dT[\d:.]+Z?|[0-9a-f]{{16,}}\b|\d{{5,}}\b)")


def masked(text: str) -> str:
    """Return 200 characters of a text in one line, with masks for ids, numbers, times, quoted values and paths."""
    said, length = list[str](), 0
    for match in _ALL.finditer(" ".join(text[:_MOST_TEXT].split())):
        said.append(_mask(match))
        length += len(said[-1])
        if length >= _MAX_CAUSE:
            break
    return "".join(said)[:_MAX_CAUSE]


def masked_reason(reason: str) -> str:
    """Mask long numbers and ids in a dead-letter reason; codes stay."""
    return _IN_REASONS.sub("<id>", " ".join(reason[:500].split()))


def _mask(match: re.Match[str]) -> str:
    name = (match.lastgroup or "").partition("_")[0]
    if name == "kept":
        return match[0]
    if name == "word":
        return match[0] if match[0].casefold() in _WORDS else "<id>"
    return f"<{name}>"


# ---------------------------------------------------------------- stack traces

_LINES: Final = re.compile(r"\r\n?|\n|\\r\\n|\\n| (?<=\S )  (?=at \S)")
"""Ends of lines, also where they were escaped, or where a trace of .NET was put on one line."""
# "at" in the languages that .NET speaks; Java and Node know English only.
_LINE: Final = re.compile(
    r"(?:at|bei|à|en|em|in|в|w|在|場所)\s++(?:async\s++)?(?:new\s++)?(?P<at>\S.*)"
    r"|File \"(?P<file>[^\"]++)\", line \d++(?:, in (?P<function>.+))?"
    r"|(?P<cause>Caused by: )"
    r"|(?P<noise>(?:Traceback \(most recent call last\):?|\.\.\. \d++ (?:more|common frames omitted))\Z"
    r"|(?:-{3}.*-{3}|[\s^~]*+)\Z"
    r"|(?:During handling of the above|The above exception was the direct|\[CIRCULAR REFERENCE))"
)
"""A line of a trace, without the blanks around it."""
_PLACE: Final = re.compile(r"\(?((?:[A-Za-z][\w+.-]{0,20}+:(?!\d))?[^\s():]++):\d+(?::\d+)?\)?\Z")
"""Node's ``file.js:10:5`` and ``node:internal/timers:10:5``."""
_AS: Final = re.compile(r" \[as [^\]]*+(?:\]|\Z)")
_RECEIVER: Final = re.compile(r"(?:Object|Module|Function|Array|Promise)\.")
_MODULE: Final = re.compile(r"[\w.-]{1,60}+(?:@[\w.-]{0,40}+)?/{1,2}(?=\w)")
"""Java's module or class loader."""
_COMPILED: Final = re.compile(
    r"\[[^\]]*+(?:\]|\Z)|`\d++"  # .NET's type arguments
    r"|<(\w++)>g__(\w++)\|[\d_]++"  # local functions
    r"|<>c(?:__DisplayClass[\d_]++)?[.+]"  # closures
    r"|<<?(\w*+)>[db]__[\d_]++(?:>d(?:__\d++)?)?(?:\.MoveNext)?"  # asynchronous methods and lambdas
    r"|lambda\$(\w++)\$\d++|\$\$(?:Lambda|EnhancerBy|FastClassBy|SpringCGLIB)[\w$/]*+|\$\d++(?=[.$\[]|\Z)"
)
"""Characters that compilers add to the name of a method."""

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


class _Frame(NamedTuple):
    name: str
    is_library: bool


def read_stack_trace(description: str) -> Cause:
    said: list[str] = []
    frames: list[_Frame] = []
    is_python = False
    for line, kind, frame in _trace(description[:MATCHED_CHARACTERS]):
        if kind == "code":
            continue
        if frame:
            frames.append(frame)
            is_python |= kind != "at"
        elif kind != "noise":
            if kind == "cause":
                frames.clear()  # the cause of the cause comes later, and is the nearer one
            said.append(line[:_MOST_LINE].strip())
    nearest = frames[::-1] if is_python else frames  # Python names the frame next to the fault last
    own = next((frame for frame in nearest if not frame.is_library), nearest[0] if nearest else None)
    return Cause(" ".join(said), own and own.name)


def trace_lines(description: str) -> list[tuple[str, bool]]:
    """Return the lines of a description, and whether each belongs to a frame of a library."""
    return [(line, frame is not None and frame.is_library) for line, _, frame in _trace(description)]


def _trace(text: str) -> Iterator[tuple[str, str | None, _Frame | None]]:
    """Yield each line, its kind, and the frame that it belongs to; the line of code of a frame is ``code``."""
    in_python, of = False, None
    for line in _lines(text):
        kind, frame = _read_line(line[:_MOST_LINE].strip())
        if frame is None and in_python and line.startswith("    "):
            yield line, "code", of
            continue
        if frame or kind != "noise":
            in_python = frame is not None and kind != "at"
        of = frame
        yield line, kind, frame


@lru_cache(maxsize=4_000)
def _read_line(words: str) -> tuple[str | None, _Frame | None]:
    """Return the kind of a line, and its frame if it has one. The traces of a fault have the same lines."""
    match = _LINE.match(words)
    kind = match.lastgroup if match else None
    return kind, _frame(match) if match and kind not in {"cause", "noise"} else None


def _lines(text: str) -> list[str]:
    most = max(_LEAST_LINES, len(text) // _SHORT_LINE)
    is_plain = "\r" not in text and "\\n" not in text and text.count("   at ") == text.count("\n   at ")
    return text.split("\n", most) if is_plain else _LINES.split(text, most)


def _frame(match: re.Match[str]) -> _Frame | None:
    if match.lastgroup == "at":
        return _frame_at(match["at"].replace("file://", ""))
    path, function = match["file"].replace("\\", "/"), match["function"] or "<module>"
    is_library = any(part in path for part in _LIBRARY_PATHS)
    return _Frame(f"{path.rpartition('/')[2]}:{function}"[:_MOST_FRAME], is_library)


def _frame_at(rest: str) -> _Frame | None:
    has_place = ":" in rest and " in " not in rest and not rest.endswith((".java)", ".kt)"))
    place = _PLACE.match(rest, max(rest.rfind(" "), rest.rfind("(") - 1) + 1) if has_place else None
    # Java has no blank before its parenthesis, and a file without a folder in it.
    if place is not None and (" (" in rest or place[1].startswith("node:") or not {"/", "\\"}.isdisjoint(place[1])):
        return _node_frame(rest, place)
    method, parenthesis, _ = rest.partition("(")
    name = _plain(method.strip()) if parenthesis else ""
    # A sentence may begin with "at", too: it has blanks.
    if "." not in name or " " in name:
        return None
    return _Frame(name, name.startswith(_FRAMEWORKS) or rest.endswith(_BUILT_IN))


def _node_frame(rest: str, place: re.Match[str]) -> _Frame:
    path = place[1].replace("\\", "/")
    function = _AS.sub("", rest[: place.start()].strip())
    if receiver := _RECEIVER.match(function):
        function = function[receiver.end() :]
    if not function or function == "<anonymous>":
        function = path.rpartition("/")[2]
    return _Frame(function[:_MOST_FRAME], any(part in f"/{path}" for part in _LIBRARY_PATHS))


@lru_cache(maxsize=1_000)
def _plain(method: str) -> str:
    """Strip a method's name of what compilers add, which differs from build to build."""
    module = _MODULE.match(method) if "/" in method else None
    name = _COMPILED.sub(_written, method[module.end() :] if module else method)
    return name[:_MOST_FRAME].strip(".+")


def _written(match: re.Match[str]) -> str:
    is_open = match[0].startswith("[") and not match[0].endswith("]")
    return match[0] if is_open else ".".join(filter(None, match.groups()))
