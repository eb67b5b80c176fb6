"""The triage as VS Code shows it: by Microsoft's own script for widgets, in its themes, and under its strict policy.

VS Code itself is not there. The package `@vscode/jupyter-ipywidgets8` is what shows the widgets in it. The page
around it has the variables and classes that VS Code gives to pages of outputs, and a real kernel.
"""

from __future__ import annotations

import html
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from scripts.bootstrap import vscode_archive
from tests.browser.conftest import Lab, faults
from tests.browser.test_accessibility import OPTIONS

PAGE: Final = Path(__file__).with_name("vscode_page.js")
ANYWIDGET: Final = Path(sys.prefix, "share", "jupyter", "nbextensions", "anywidget", "index.js")
# https://code.visualstudio.com/api/references/theme-color names them; the values are those of Dark and Light Modern.
BOTH: Final = {
    "font-family": "system-ui, sans-serif",
    "font-size": "13px",
    "editor-font-family": "monospace",
    "editor-font-size": "14px",
}
THEMES: Final = {
    "vscode-dark": BOTH
    | {
        "editor-background": "#1f1f1f",
        "editor-foreground": "#cccccc",
        "notebook-cellEditorBackground": "#1f1f1f",
        "input-background": "#313131",
        "input-foreground": "#cccccc",
        "panel-border": "#2b2b2b",
        "button-background": "#0078d4",
        "button-foreground": "#ffffff",
        "textLink-foreground": "#4daafc",
        "focusBorder": "#0078d4",
        "errorForeground": "#f85149",
        "editorError-foreground": "#f14c4c",
        "charts-green": "#89d185",
        "charts-orange": "#d18616",
    },
    "vscode-light": BOTH
    | {
        "editor-background": "#ffffff",
        "editor-foreground": "#3b3b3b",
        "notebook-cellEditorBackground": "#f8f8f8",
        "input-background": "#ffffff",
        "input-foreground": "#3b3b3b",
        "panel-border": "#e5e5e5",
        "button-background": "#005fb8",
        "button-foreground": "#ffffff",
        "textLink-foreground": "#005fb8",
        "focusBorder": "#005fb8",
        "errorForeground": "#f85149",
        "editorError-foreground": "#e51400",
        "charts-green": "#388a34",
        "charts-orange": "#d18616",
    },
}
# What the extension maps since August 2025 (vscode-jupyter, pull request 16894): all backgrounds to one colour, all
# fonts to the editor's.
MAPPED: Final = {
    "editor-font-family": ("ui-font-family", "content-font-family", "code-font-family"),
    "editor-foreground": ("ui-font-color0", "ui-font-color1", "ui-font-color2", "widgets-color", "widgets-label-color"),
    "textLink-foreground": ("brand-color1",),
    "panel-border": ("border-color1", "border-color2"),
}
LAYOUT: Final = {"vscode-dark": "input-background", "vscode-light": "notebook-cellEditorBackground"}
# Of VS Code's setting `notebook.experimental.enableCsp`, with the page's own addresses in place of VS Code's.
POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' https: http: data:; font-src 'self' https:; connect-src 'self' {sockets}; child-src https: data:"
)
DRESS: Final = """([kind, variables]) => {
    for (const [name, value] of Object.entries(variables))
        document.documentElement.style.setProperty(`--vscode-${name}`, value);
    document.body.className = kind;
    document.body.dataset.vscodeThemeKind = kind;
}"""
SET_UP: Final = """
import os
os.environ["XDG_DATA_HOME"] = {data!r}
from sbnotebook import Message, connect
from sbnotebook.widgets import panel
from sbnotebook.widgets.triage import Triage
panel._PLAIN_AFTER = {patience}
namespace = connect("emulator")
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send(Message(body=b'{{"order": %d}}' % n, subject="order") for n in range(20))
with queue.lock(20) as batch:
    held = list(batch.messages)
    batch.dead_letter(held[:12], reason="PriceMissing", description="no price")
    batch.dead_letter(held[12:], reason="CarrierUnknown", description="the carrier is unknown")
triage = Triage(namespace, "orders/$dlq")
display(triage)
"""
COLOURS: Final = """(panel) => {
    const style = (selector) => getComputedStyle(panel.querySelector(selector));
    return {
        font: style('.sbn-table').fontFamily,
        prose: style('.sbn-words').fontFamily,
        label: style('.sbn-text').fontFamily,
        table: style('.sbn-table').backgroundColor,
        head: style('.sbn-head').backgroundColor,
        line: style('.sbn-grid').borderTopColor,
        quiet: style('.sbn-counts').color,
        text: style('.sbn-table').color,
    };
}"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1200, "height": 1100})
    yield page
    page.evaluate("() => window.shutDown?.()")
    page.close()


def opened(page: Page, lab: Lab, *, policy: str = "", patience: float = 15.0) -> Locator:
    """Open the page in the dark theme, with the triage; gives the panel."""
    name = "vscode-strict" if policy else "vscode"
    _write(lab.static / name, policy)
    page.goto(f"{lab.url}/static/{name}/index.html")
    page.evaluate(DRESS, ["vscode-dark", THEMES["vscode-dark"]])
    page.wait_for_function("() => window.isReady")
    data = lab.folder.parent / f"data-{name}"
    status, printed = page.evaluate("(code) => window.run(code)", SET_UP.format(data=str(data), patience=patience))
    assert status == "ok", printed
    return page.locator(".sbn-panel").first


def _write(folder: Path, policy: str) -> None:
    archive = vscode_archive()
    assert archive.is_file(), "VS Code's script for widgets is missing: run make setup."
    with tarfile.open(archive) as members:
        script = members.extractfile("package/dist/ipywidgets.js")
        assert script
        widgets = script.read().decode()
    exported = "\nexport { __webpack_require__ as require_, __webpack_modules__ as modules };"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">' if policy else ""
    styles = "\n".join(
        f".{kind} .cell-output-ipywidget-background {{ background: transparent; {_mapped(layout)} }}"
        for kind, layout in LAYOUT.items()
    )
    page = (
        f"<!DOCTYPE html><html lang=en><title>Outputs</title>{meta}<style>{styles}</style>"
        "<body style='background: var(--vscode-editor-background)'><main id=outputs></main>"
        "<script type=module src=page.js></script>"
    )
    files = {
        "index.html": page,
        "page.js": PAGE.read_text(),
        "ipywidgets.js": widgets + exported,
        "anywidget.js": ANYWIDGET.read_text(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        folder.joinpath(name).write_text(text)


def _mapped(layout: str) -> str:
    pairs = MAPPED | {layout: tuple(f"layout-color{n}" for n in range(4))}
    return " ".join(f"--jp-{name}: var(--vscode-{source});" for source, names in pairs.items() for name in names)


@pytest.mark.browser
@pytest.mark.thorough
def test_vscode_shows_the_triage_in_the_colours_of_its_theme(
    page: Page, lab: Lab, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    panel = opened(page, lab)
    expect(panel.get_by_text("20 messages, peeked at")).to_be_visible()
    panel.get_by_role("button", name="Select 12", exact=True).click()
    panel.locator("button:not(.sbn-causes-view *)", has_text="Resubmit…").first.click()
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_role("button", name="Carry out")).to_be_visible()
    for theme, variables in THEMES.items():
        page.evaluate(DRESS, [theme, variables])
        page.screenshot(path=tmp_path / f"{theme}.png", full_page=True)
        with subtests.test(theme):
            _has_its_own_looks(panel)
            assert faults(page, ".sbn-panel", OPTIONS) == []
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("Resubmitted 12 messages to orders.")).to_be_visible()
    assert page.evaluate("() => window.problems") == []


def _has_its_own_looks(panel: Locator) -> None:
    seen = panel.evaluate(COLOURS)
    assert {seen["font"], seen["prose"], seen["label"]} == {"system-ui, sans-serif"}
    assert len({seen["table"], seen["head"], seen["line"]}) == 3, seen
    assert seen["quiet"] != seen["text"]


@pytest.mark.browser
@pytest.mark.thorough
def test_vscode_under_a_strict_policy_shows_the_plain_table(page: Page, lab: Lab, tmp_path: Path) -> None:
    policy = POLICY.format(sockets=lab.url.replace("http", "ws"))
    panel = opened(page, lab, policy=policy, patience=1.0)
    expect(panel.get_by_text("This is the plain panel")).to_be_visible()
    expect(panel.get_by_text("1 to 20 of 20")).to_be_visible()
    panel.get_by_role("checkbox", name="#1", exact=True).check()
    panel.get_by_role("button", name="Complete…").click()
    panel.get_by_role("button", name="Show the plan").click()
    page.screenshot(path=tmp_path / "strict.png", full_page=True)
    # By the keyboard: a click may miss a button that moves, because the text of the plan above it grows.
    panel.get_by_role("button", name="Carry out").press("Enter")
    expect(panel.get_by_text("Completed 1 message of orders/$dlq.")).to_be_visible()
    expect(panel.locator("button i").first).to_be_hidden()
