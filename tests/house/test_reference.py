"""The reference names every public name, option, error, fault and variable, and every link has a target."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer

from sbnotebook.cli import app
from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.options import options_of
from sbnotebook.emulator.faults import Faults
from sbnotebook.emulator.service.broker import ACTS
from sbnotebook.magics.current import SbMagics
from sbnotebook.probe.run import PROBES
from sbnotebook.testing import plugin
from scripts.python_reference import PYTHON, python_page, targets
from scripts.reference_pages import MAGICS, WORDS, magic_page, spark_options
from tests.browser.conftest import chromium

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PUBLIC = (
    "sbnotebook",
    "sbnotebook.client",
    "sbnotebook.emulator",
    "sbnotebook.errors",
    "sbnotebook.model",
    "sbnotebook.settlement",
    "sbnotebook.spark",
    "sbnotebook.testing",
    "sbnotebook.testing.hostile",
    "sbnotebook.testing.strategies",
)
FOR_USERS = {
    "sbnotebook.settlement": [
        "Archive",
        "Connection",
        "Journal",
        "Policy",
        "PolicyRow",
        "Preview",
        "RejectMessage",
        "SkipMessage",
        "StopProcessing",
        "Then",
        "Watch",
        "reporting",
    ]
}
"""Names that users import, of a package that exports others to the parts of sbnotebook."""
# What a reader with a phone would have to scroll sideways for.
CUT_OFF = """() => [...document.querySelectorAll('article :is(.table-wrapper, table, pre, img, dt.sig)')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => `${each.tagName} ${each.textContent.slice(0, 60)}`)"""
# Words in tables that a narrow column breaks in two.
BROKEN = """() => [...document.querySelectorAll('article table.docutils')].flatMap((table) => {
    const texts = document.createTreeWalker(table, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) {
        const text = texts.currentNode;
        for (const word of text.parentElement.closest('code') ? [] : text.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1) found.push(word[0]);
        }
    }
    return found;
})"""
# What Sphinx's search does with a query, best first, without a new page for each.
RESULTS = "(query) => Search._performSearch(...Search._parseQuery(query)).reverse().slice(0, 3).map((each) => each[0])"
HIGHEST = 20_000  # pixels at a width of 1,280; the reference of Python was one page of 81,821
PAGES = [*ROOT.glob("*.md"), ROOT / "notebooks" / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as ``make docs`` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "--keep-going", str(DOCS), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert result.returncode == 0, result.stderr
    return folder


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.thorough
def test_the_documentation_builds_without_a_warning(site: Path) -> None:
    assert (site / "reference" / "errors.html").is_file()
    pages = re.findall(r"^- \[.+?\]\(([\w/-]+\.html)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert len(pages) > 40
    assert [each for each in pages if not (site / each).is_file()] == []
    assert not any("\N{EN DASH}where" in path.read_text() for path in site.rglob("*.html"))


@pytest.mark.browser
@pytest.mark.thorough
def test_pages_are_whole_on_a_phone_and_not_endless(site: Path) -> None:
    cut_off: dict[str, list[str]] = {}
    heights: dict[str, int] = {}
    pages = sorted(site.rglob("*.html"))
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.route("**/*.js", lambda route: route.abort())  # a static page needs no script
        for path in pages:
            page.goto(path.as_uri())
            cut_off[path.stem] = page.evaluate(CUT_OFF) + page.evaluate(BROKEN)
            cut_off[path.stem] += ["the page"] * (page.evaluate("document.documentElement.scrollWidth") > 400)
        page.set_viewport_size({"width": 1280, "height": 800})
        for path in site.glob("reference/**/*.html"):
            page.goto(path.as_uri())
            heights[path.stem] = page.evaluate("document.documentElement.scrollHeight")
    assert {name: parts for name, parts in cut_off.items() if parts} == {}
    assert {name: height for name, height in heights.items() if height > HIGHEST} == {}


@pytest.mark.browser
@pytest.mark.thorough
def test_words_of_users_lead_to_the_right_page(site: Path) -> None:
    wrong: dict[str, str] = {}
    wanted = {word: page for page, words in WORDS.items() for word in words}
    searched = "redrive requeue replay reprocess restore RBAC firewall troubleshooting FAQ glossary"
    assert {*searched.split(), "service principal", "private endpoint"} <= wanted.keys()
    with chromium() as browser:
        page = browser.new_page()
        page.goto((site / "search.html").as_uri())
        page.wait_for_function("Search.hasIndex()")
        for word, place in wanted.items():
            results: list[str] = page.evaluate(RESULTS, word)
            if results[:1] != [place]:
                wrong[word] = ", ".join(results)
    assert wrong == {}


def test_the_index_lists_each_page_once() -> None:
    listed = re.findall(r"\]\(((?:how-to|explanation)/[\w-]+)\.md\)", page("index.md"))
    pages = sorted(
        str(path.relative_to(DOCS).with_suffix(""))
        for kind in ("how-to", "explanation")
        for path in (DOCS / kind).glob("*.md")
    )
    assert sorted(listed) == pages


@pytest.mark.parametrize("path", MAGICS)
def test_pages_of_the_magics_are_as_their_help_says(path: str) -> None:
    assert page(path) == magic_page(*MAGICS[path]), "Run python -m scripts.reference_pages."


@pytest.mark.parametrize("path", PYTHON)
def test_pages_of_python_are_as_the_docstrings_say(path: str) -> None:
    assert page(path) == python_page(path), "Run python -m scripts.reference_pages."


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_documented(module: str) -> None:
    documented = [resolve_name(name) for name in targets()]
    names: list[str] = FOR_USERS.get(module) or import_module(module).__all__
    for name in names:
        value = getattr(import_module(module), name)
        assert f"{module}.{name}" in targets() or any(each is value for each in documented), f"{module}.{name}"


def test_every_method_of_the_client_is_documented() -> None:
    client = import_module("sbnotebook.client")
    # A drift test holds that asynchronous classes have the same methods as their twins.
    names = [name for name in client.__all__ if not name.startswith("Async")]
    classes = [value for name in names if isinstance(value := getattr(client, name), type)]
    wanted = {
        f"sbnotebook.client.{kind.__name__}.{name}"
        for kind in classes
        for name, value in vars(kind).items()
        if not name.startswith("_") and (isfunction(value) or isinstance(value, property))
    }
    assert len(wanted) > 80
    assert wanted - targets().keys() == set()


def test_every_name_at_the_border_of_settlement_has_a_docstring() -> None:
    border = import_module("sbnotebook.settlement")
    named: dict[str, Any] = {name: getattr(border, name) for name in border.__all__}
    ours = {name: value for name, value in named.items() if getattr(value, "__module__", "").startswith("sbnotebook")}
    members: dict[str, Any] = {
        f"{name}.{member}": value
        for name, kind in ours.items()
        if isinstance(kind, type)
        for base in kind.__mro__
        if base.__module__.startswith("sbnotebook.settlement")
        for member, value in vars(base).items()
        if not member.startswith("_") and (isfunction(value) or isinstance(value, property | classmethod))
    }
    assert len(members) > 100
    assert [name for name, value in (ours | members).items() if not value.__doc__] == []


def test_the_options_of_spark_are_documented() -> None:
    text = page("reference/spark-options.md")
    assert all(spark_options(place) in text for place in ("spark.read", "spark.readStream", "frame.write"))


def test_every_fault_is_documented() -> None:
    rows = re.findall(r"^\| `(\w+)(?:\((?:path)?\))?` \| (?!\|)", page("how-to/emulator-faults.md"), re.MULTILINE)
    assert sorted(rows) == sorted({*Faults.__dataclass_fields__, *ACTS} - {"entities", "reset"})
    assert all(hasattr(RunningEmulator, name) for name in ACTS)


def test_every_option_of_entities_is_documented() -> None:
    rows = re.findall(
        r"^\| `([A-Z]\w+)` \| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", page("how-to/emulator.md"), re.MULTILINE
    )
    kinds = {"queue": QueueOptions, "topic": TopicOptions, "subscription": SubscriptionOptions}
    known = {name: option for kind in kinds.values() for name, option in options_of(kind).items()}
    assert [name for name, *_ in rows] == sorted(known)
    for name, attribute, values, default, owners in rows:
        option = known[name]
        written = None if option.default is None else option.write(option.default)
        fixed = "; fixed from the creation on" if option.is_fixed else ""
        assert (attribute, values, default.strip("`") or None) == (option.attribute, option.values + fixed, written)
        assert owners.split(", ") == [owner for owner, kind in kinds.items() if name in options_of(kind)]


def test_every_azure_fact_names_its_probe() -> None:
    rows = re.findall(r"^\| (?!assumption).*\| (.*?) \|$", page("reference/azure-facts.md"), re.MULTILINE)
    assert len(rows) > 25
    assert [row for row in rows if row != "—" and not re.fullmatch(r"(`[\w-]+`(, (?=`))?)+", row)] == []
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {probe.name for probe in PROBES}


def test_every_default_of_the_magics_is_documented() -> None:
    defaults = page("reference/magics.md").partition("## Defaults")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", defaults, re.MULTILINE)) == set(SbMagics.class_own_traits(config=True))


def test_every_fixture_is_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", page("how-to/test-your-code.md"), re.MULTILINE)
    assert sorted(rows) == sorted(plugin.__all__)


def test_every_option_of_the_command_line_is_documented() -> None:
    commands = [command.callback for command in app.registered_commands if command.callback]
    modules = ("demo.command:demo", "emulator.command:emulator", "probe.command:probe")
    commands += [resolve_name(f"sbnotebook.{name}") for name in modules]
    text = page("reference/command-line.md")
    for command in commands:
        single = typer.Typer(add_completion=False)
        single.command()(command)
        shown = [each for each in typer.main.get_command(single).params if not getattr(each, "hidden", False)]
        flags = [flag for each in shown for flag in each.opts if flag.startswith("-")]
        assert [flag for flag in flags if not re.search(rf"`(?:--no-)?{flag.lstrip('-')}|`{flag}\b", text)] == []


def test_every_variable_of_the_environment_is_documented() -> None:
    code = "".join(path.read_text() for path in (ROOT / "sbnotebook").rglob("*.py"))
    read = set(re.findall(r'"(SBNOTEBOOK_[A-Z]+|SERVICEBUS_[A-Z_]+)"', code)) - {"SBNOTEBOOK_TRIAGE"}  # our own
    assert {name for name in read if f"| `{name}` |" not in page("reference/command-line.md")} == set()


def test_extras_are_documented_and_named_ones_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page("how-to/set-up.md"), re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(rows))) == extras
    named = re.findall(r"(?:sbnotebook|\.)\[(\w+)\]", "".join(path.read_text() for path in PAGES))
    assert set(named) <= extras


def test_links_inside_the_project_go_somewhere() -> None:
    links = [(path, link) for path in PAGES for link in _links(path)]
    assert len(links) > 400
    assert [f"{path.relative_to(ROOT)}: {link}" for path, link in links if not _goes_somewhere(path, link)] == []


def _links(path: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^()\s]+)\)", text) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
    return [link for link in links if not re.match(r"[a-z]+://|mailto:", link)]


def _goes_somewhere(path: Path, link: str) -> bool:
    place, _, anchor = link.partition("#")
    target = (path.parent / place).resolve() if place else path
    return target.exists() and (not anchor or anchor in _anchors(target))


@cache
def _anchors(target: Path) -> set[str]:
    """The anchors that a page has for its headings, on GitHub and in the documentation."""
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
