"""A change in a panel of 200 blocks: the longest task that it costs the browser, and the bytes that it sends."""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import median
from typing import Final

from benchmarks.results import Result, show
from sbnotebook.widgets.blocks import Block, Button, Field, Row, Text, Title, nodes_of
from sbnotebook.widgets.renderers.browser import difference, module, style
from tests.browser.conftest import chromium

COUNT: Final = 200
ROUNDS: Final = 50
MOST: Final = 50.0
"""Milliseconds of a task, from which on a browser counts it as long."""
DRAW: Final = """async ([script, looks, tree]) => {
    const look = Object.assign(document.createElement("style"), { textContent: looks });
    document.head.append(look);
    const { default: make } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    const listeners = [];
    const model = {
        get: (name) => (name === "tree" ? tree : ""),
        on: (type, listen) => type === "msg:custom" && listeners.push(listen),
        off() {}, send() {},
    };
    const widget = make();
    widget.initialize({ model });
    widget.render({ model, el: document.querySelector("main") });
    window.change = (message) => {
        const begin = performance.now();
        for (const listen of listeners) listen(message);
        document.querySelector("main").getBoundingClientRect();  // with the layout
        return performance.now() - begin;
    };
}"""


def panel(turn: int) -> list[Block]:
    """Return 200 blocks, a quarter of which say something else in each turn."""
    rows = [
        Row([Text(f"message {n}, turn {turn}"), Button(f"Look at {n}", int), Field(f"note {n}", "", int)], key=f"{n}")
        for n in range(COUNT // 4)
    ]
    return [Title("Many blocks"), *rows]


def measure() -> list[Result]:
    """Change the panel 50 times, with its layout."""
    trees = [{place: node for place, (_, node) in nodes_of(panel(turn)).items()} for turn in range(ROUNDS + 1)]
    changes = [{"kind": "change", "turn": turn, **difference(*two)} for turn, two in enumerate(pairwise(trees), 1)]
    with chromium() as browser:
        page = browser.new_page()
        page.set_content("<main></main>")
        page.evaluate(DRAW, [module("blocks.js"), style("look.css", "blocks.css"), {"turn": 0, "nodes": trees[0]}])
        times = [float(page.evaluate("(message) => window.change(message)", change)) for change in changes]
    size = max(len(json.dumps(change)) for change in changes)
    return [
        Result(
            f"a panel of {COUNT} blocks, a quarter of which changes: the browser's task",
            f"{median(times):.1f} ms, the longest of {ROUNDS} {max(times):.1f} ms; {size / 1e3:.1f} kB are sent",
            f"at most {MOST:.0f} ms",
            max(times) < MOST,
        )
    ]


if __name__ == "__main__":
    show(measure())
