"""Check the project's English: ``python -m scripts.prose [FILES]`` prints each sentence that breaks a rule.

The rules, with examples, are in CONTRIBUTING.md. This module checks those that a machine can check, in documentation,
notebooks, docstrings, comments and the texts that sbnotebook prints.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Fault", "check", "faults", "files"]

ROOT: Final = Path(__file__).resolve().parents[1]

LONGEST_SENTENCE: Final = 35
# Shorter strings in code are keys, SQL and labels.
SHORTEST_TEXT: Final = 4

# The phrase, and what to write instead.
_BE: Final = r"(?:am|is|are|was|were|be|been|being)"
_BANNED: Final = {
    rf"\b{_BE}(?: \w+ly)? (?:had|told)\b": "name who has or says it",
    r"\b(?:nobody|somebody|anybody|whoever|whatever|whichever)\b": "name the subject, or write 'any'",
    r"(?:^|\b(?:for|to|by|of|from|with|and|or|tells?|says?) )who\b(?! (?:is|are)\b)": "name the person",
    r"\bwhat (?:is|are|was|were|has|had)\b": "name the thing",
    r"\bwhat (?:can|cannot|comes?|came|goes|stays?|waits?|needs?|wants?|got|gets)\b": "name the thing",
    r"\b(?:stands?|stood|standing)\b(?! for\b| still\b|-)": "write 'is', 'remains' or 'acts as'",
    r"\b(?:go|goes|going|went|gone) on\b": "write 'continue' or 'happen'",
    r"\b(?:that|which|what) (?:is|are|was|were)(?: not| no longer| still)? there\b": "write 'exists'",
    r"(?:^|[,;:] |\b(?:if|when|where|what|that|as|so|because|before|until|how|which|here) )one "
    r"(?:can|cannot|may|must|should|only|wants|needs|sees|gets|likes|knows|looks|reads)\b": "write 'you'",
    r"(?<!each )\bone's\b": "write 'your' or 'its'",
    r"(?:^|[,;:] |\band )to \w+(?: \w+){0,5} is to \w+": "make the person the subject",
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|fewer\b|less\b|different\b)": "write 'is not a'",
    r"\bunder way\b": "write 'in progress'",
    r"\b(?:is|are|was|were|be|been) cut off\b": "write 'interrupted'",
    r"\bwr(?:ites?|itten|iting) down\b": "write 'record'",
    r"\bonly looks?\b": "write 'read-only'",
    r"\boutside of\b": "write 'outside'",
    r"\bbehind your back\b": "say it directly",
}
BANNED: Final = {re.compile(pattern, re.IGNORECASE): advice for pattern, advice in _BANNED.items()}

# A guide is a task, so each of its headings begins with what to do.
VERBS: Final = frozenset(
    re.findall(
        r"[\w-]+",
        """
        Act Add Allow Analyse Answer Ask Assign Attack Avoid Break Browse Build Cancel Change Check Choose
        Clean Combine Compare Complete Configure Connect Consume Continue Control Copy Count Create
        Dead-letter Decide Defer Delay Delete Deploy Detect Do Edit Empty Enable Estimate Evaluate Expand
        Explain Export Filter Find Finish Fix Follow Forward Get Give Grant Group Handle Hold Import Inspect
        Install Keep Know Learn Leave Let Limit List Load Lock Look Make Map Measure Merge Migrate Monitor
        Move Open Park Pause Peek Pick Plan Plot Prepare Preview Process Purge Push Query Read Receive
        Recover Reduce Refuse Release Remove Renew Repair Repeat Replace Report Resolve Restore Resubmit
        Resume Retry Return Run Save Schedule Search See Select Send Serve Set Settle Share Show Sign
        Simulate Size Skip Slow Sort Split Start Stay Stop Store Stream Subscribe Survive Test Transfer
        Translate Triage Troubleshoot Try Tune Turn Understand Undo Unlock Update Upgrade Use Verify View
        Wait Wake Watch Work Write
        """,
    )
)
NO_TASKS: Final = ("See also", "How-to guides", "Next steps")

_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+")
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.(?= [a-z0-9])")
_CODE: Final = re.compile(r"(`+)[^`]+?\1")
_CODE_LIST: Final = re.compile(r"X(?:(?:,| and| or|, and) X)+")
_LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?")
_FENCE: Final = re.compile(r"^\s*(```|~~~|:::)")
_LIST_ITEM: Final = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_FIELD: Final = re.compile(r"^\s*(?:\*{0,2}\w+(?: \([^)]*\))?:\s|[A-Z]\w+:$|>>> |\.\.\. |:\w+)")
# Of a table in reStructuredText: its borders, and the first line of a row.
_BORDER: Final = re.compile(r"=+(?: +=+)*$")
_ROW: Final = re.compile(r"=|\S+(?: \S+)* {2,}\S")
_SQL: Final = re.compile(r"(?:SELECT|CREATE|INSERT|UPDATE|DELETE|WITH|ALTER) ")
_ARGUMENT: Final = re.compile(r"\*{0,2}\w+(?: \([^)]*\))?: ")
# Ten times as fast as tokenize.
_STRING_OR_COMMENT: Final = re.compile(
    r"""\"{3}(?:[^"\\]|\\.|"(?!""))*\"{3}|'{3}(?:[^'\\]|\\.|'(?!''))*'{3}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*""",
    re.DOTALL,
)
_WORD: Final = re.compile(r"[A-Za-z0-9][\w'.,/-]*")


@dataclass(frozen=True)
class Fault:
    """A sentence that breaks a rule."""

    path: Path
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{_place(self.path)}:{self.line}: {self.advice}: {' '.join(self.text.split())}"


def _place(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def files() -> list[Path]:
    """Return every file whose prose is checked."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.*")]
    folders = ("sbnotebook", "pyspark_servicebus", "scripts", "benchmarks", "tests")
    code = [path for folder in folders for kind in ("*.py", "*.js", "*.toml") for path in (ROOT / folder).rglob(kind)]
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "docs" / "conf.py"]
    return sorted(path for path in (*pages, *code, *others) if not {"_build", "node_modules"} & set(path.parts))


def check(path: Path) -> list[Fault]:
    """Return the faults of a file, in the order of its lines."""
    found = [Fault(path, line, *each) for line, text in _texts(path) for each in faults(text)]
    if "how-to" in path.parts and path.suffix == ".md":
        found += [
            Fault(path, line, text, "begin the heading with a verb") for line, text in _headings(path.read_text())
        ]
    return sorted(found, key=lambda fault: fault.line)


def faults(text: str) -> list[tuple[str, str]]:
    """Return the sentences of a paragraph that break a rule, each with what to do about it.

    Example:
        >>> [advice for _, advice in faults("All is well. " + "word " * 36)]
        ['36 words: split the sentence']
    """
    argument = _ARGUMENT.match(text)
    plain = _LINK.sub(r"\1", _CODE.sub("X", text[argument.end() :] if argument else text))
    found: list[tuple[str, str]] = []
    for sentence in _SENTENCE_END.split(_ABBREVIATION.sub(r"\1", plain)):
        hits = {pattern.search(sentence): advice for pattern, advice in BANNED.items()}
        found += [(sentence, f"'{hit[0].strip()}': {advice}") for hit, advice in hits.items() if hit]
        if (words := len(_WORD.findall(_CODE_LIST.sub("X", sentence)))) > LONGEST_SENTENCE:
            found.append((sentence, f"{words} words: split the sentence"))
    return found


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _paragraphs(text)
    elif path.suffix == ".ipynb":
        yield from _notebook_texts(text)
    elif path.suffix == ".py":
        yield from _comments(text)
        yield from _strings(ast.parse(text), everything="sbnotebook" in _place(path).parts)
    else:
        yield from _line_comments(text)


def _notebook_texts(text: str) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(json.loads(text)["cells"], start=1):
        source = "".join(cell["source"])
        inside = _paragraphs(source) if cell["cell_type"] == "markdown" else _line_comments(source)
        yield from ((number, paragraph) for _, paragraph in inside)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, list item, heading and cell of a table, with the number of its first line."""
    start, lines, fenced = 0, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if _FENCE.match(line):
            fenced = not fenced
        stripped = line.strip()
        apart = not stripped or fenced or _FENCE.match(line) or stripped[0] in "#|<>" or _FIELD.match(line)
        apart = apart or _ROW.match(line)
        if (apart or _LIST_ITEM.match(line)) and lines:
            yield start, " ".join(lines)
            lines = []
        if fenced or not stripped or _FENCE.match(line) or _BORDER.match(stripped):
            continue
        if stripped.startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", stripped.strip("|")))
        elif not stripped.startswith(("<", ">>> ", "... ")):
            start = start if lines else number
            lines.append(_LIST_ITEM.sub("", line).strip().lstrip("#> "))
    if lines:
        yield start, " ".join(lines)


def _headings(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= bool(_FENCE.match(line))
        heading = re.match(r"#{1,3} (.+)", line)
        if heading and not fenced and not _is_a_task(heading[1]):
            yield number, heading[1]


def _is_a_task(heading: str) -> bool:
    return heading in NO_TASKS or heading.split(maxsplit=1)[0].rstrip(",:") in VERBS


def _strings(tree: ast.AST, *, everything: bool) -> Iterator[tuple[int, str]]:
    """Yield docstrings and, with ``everything``, all other strings that read as text."""
    seen = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            expression = node.body[0]
            seen.update(ast.walk(expression))
            yield from ((expression.lineno + line - 1, paragraph) for line, paragraph in _paragraphs(text))
        elif everything and isinstance(node, ast.JoinedStr | ast.Constant) and node not in seen:
            seen.update(ast.walk(node))
            lines = _text_of(node).splitlines()
            texts = [line for line in lines if len(line.split()) >= SHORTEST_TEXT and not _SQL.match(line)]
            yield from ((node.lineno, text) for text in texts)


def _text_of(node: ast.JoinedStr | ast.Constant) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X" for part in parts
    )


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module; those on lines of their own that follow each other are a paragraph."""
    start, lines, last = 0, list[str](), 0
    number, end = 1, 0
    for token in _STRING_OR_COMMENT.finditer(text):
        if token[0][0] != "#":
            continue
        number += text.count("\n", end, token.start())
        end = token.start()
        comment = token[0].lstrip("#: ")
        if text[text.rfind("\n", 0, end) + 1 : end].strip():
            yield number, comment
            continue
        if lines and number != last + 1:
            yield start, " ".join(lines)
            lines = []
        start = start if lines else number
        lines.append(comment)
        last = number
    if lines:
        yield start, " ".join(lines)


def _line_comments(text: str) -> Iterator[tuple[int, str]]:
    start, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        comment = re.match(r"\s*(?:#|//|\*|/\*\*?)\s+(.*)", line) or re.search(r"\s(?:##?|//)\s+([^'\"]*)$", line)
        if comment:
            start = start if lines else number
            lines.append(comment[1])
        elif lines:
            yield start, " ".join(lines)
            lines = []


def main() -> None:
    """Print the faults of the files that the command line names, or of all."""
    paths = [Path(name).resolve() for name in sys.argv[1:]] or files()
    found = [fault for path in paths for fault in check(path)]
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
