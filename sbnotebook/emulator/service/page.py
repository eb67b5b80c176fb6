"""The page that shows the entities in a browser; it reads ``GET /entities`` and changes nothing.

Names of entities are written as text only. The policy lets nothing run or load but the script and the
style of the page itself, which it knows by their hashes.

Source: W3C, "Content Security Policy Level 3", section 2.3.1.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from aiohttp import web

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #767d86; --line: #e1e4e8; --back: #fff; --band: #f6f8fa;
        --good: #1a7f37; --bad: #c4320a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --dim: #8b949e; --line: #2d333b; --back: #15181c; --band: #1c2127;
          --good: #3fb950; --bad: #ff8a65; }
}
body { margin: 0; color: var(--ink); background: var(--back); font: 15px/1.5 system-ui, sans-serif; }
header, main { max-width: 68rem; margin: 0 auto; padding: 0 1.5rem; }
header { display: flex; align-items: baseline; gap: .75rem; padding-top: 1.75rem; padding-bottom: 1rem; }
h1 { font-size: 1.25rem; margin: 0; font-weight: 600; }
#tier { color: var(--dim); }
#state { margin-left: auto; color: var(--dim); font-size: .85rem; }
#state::before { content: ""; display: inline-block; width: .55rem; height: .55rem; margin-right: .45rem;
                 border-radius: 50%; background: var(--good); }
#state.lost::before { background: var(--bad); }
main { overflow-x: auto; padding-bottom: 2rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .75rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { color: var(--dim); font-weight: 500; font-size: .8rem; }
tbody th { font-weight: 500; }
th:first-child { text-align: left; }
tbody tr:hover { background: var(--band); }
tr.subscription th { padding-left: 2.25rem; font-weight: 400; }
small { color: var(--dim); font-weight: 400; margin-left: .5rem; }
td.none { color: var(--dim); opacity: .55; }
td.dead { color: var(--bad); font-weight: 600; }
#empty { color: var(--dim); padding: 2rem 0; }
"""

_SCRIPT: Final = """
"use strict";
const COLUMNS = ["active", "locked", "deferred", "scheduled", "dead_letter", "transfer_dead_letter", "size_bytes"];
const DEAD = new Set(["dead_letter", "transfer_dead_letter"]);
const rows = new Map();
const body = document.querySelector("tbody");

function flatten(answer) {
  const queues = answer.queues.map(each => (
    {...each, kind: "queue", key: "q/" + each.name, says: said(each, "queue")}));
  const topics = answer.topics.flatMap(topic => [
    {...topic, kind: "topic", key: "t/" + topic.name, says: said(topic, "topic")},
    ...topic.subscriptions.map(each => ({
      ...each, kind: "subscription", key: "s/" + topic.name + "/" + each.name,
      says: said(each, each.rules === 1 ? "1 rule" : each.rules + " rules"),
    })),
  ]);
  return [...queues, ...topics];
}

function said(entity, what) {
  return [what, entity.requires_session ? "sessions" : "", entity.status === "Active" ? "" : entity.status]
    .filter(Boolean).join(", ");
}

function makeRow(entity) {
  const row = document.createElement("tr");
  row.className = entity.kind;
  const name = row.appendChild(document.createElement("th"));
  name.scope = "row";
  name.append(entity.name, document.createElement("small"));
  for (const column of COLUMNS) row.appendChild(document.createElement("td")).dataset.column = column;
  rows.set(entity.key, row);
  return row;
}

function size(bytes) {
  const step = bytes < 1e3 ? [1, " B"] : bytes < 1e6 ? [1e3, " kB"] : bytes < 1e9 ? [1e6, " MB"] : [1e9, " GB"];
  return (bytes / step[0]).toLocaleString("en", {maximumFractionDigits: 1}) + step[1];
}

function fill(row, entity) {
  write(row.querySelector("small"), entity.says);
  for (const cell of row.querySelectorAll("td")) {
    const column = cell.dataset.column, value = entity[column];
    write(cell, value === undefined ? "" : column === "size_bytes" ? size(value) : value.toLocaleString("en"));
    cell.classList.toggle("none", !value);
    cell.classList.toggle("dead", DEAD.has(column) && value > 0);
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function show(answer) {
  const entities = flatten(answer), keys = new Set(entities.map(each => each.key));
  for (const [key, row] of rows) if (!keys.has(key)) { row.remove(); rows.delete(key); }
  entities.forEach((entity, index) => {
    const row = rows.get(entity.key) ?? makeRow(entity);
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    fill(row, entity);
  });
  document.querySelector("table").hidden = entities.length === 0;
  document.querySelector("#empty").hidden = entities.length > 0;
  write(document.querySelector("#tier"), answer.tier);
}

function state(text, isLost) {
  const node = document.querySelector("#state");
  write(node, text);
  node.classList.toggle("lost", isLost);
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/entities", {signal: AbortSignal.timeout(10000)});
      if (!answer.ok) throw new Error("HTTP " + answer.status);
      show(await answer.json());
      state("live", false);
    } catch (error) {
      state("the emulator does not answer", true);
    }
  }
  setTimeout(refresh, 2000);
}
refresh();
"""

_HTML: Final = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Service Bus emulator</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
<header><h1>Service Bus emulator</h1><span id="tier"></span><span id="state" role="status">connecting</span></header>
<main>
<p id="empty" hidden>There is no queue and no topic yet.</p>
<table hidden>
<thead><tr><th scope="col">Entity</th><th scope="col">Active</th><th scope="col">Locked</th>
<th scope="col">Deferred</th><th scope="col">Scheduled</th>
<th scope="col">Dead-letter</th><th scope="col">Transfer dead-letter</th>
<th scope="col">Size</th></tr></thead>
<tbody></tbody>
</table>
</main>
<script>{_SCRIPT}</script>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page() -> web.Response:
    """Return the page."""
    return web.Response(text=_HTML, content_type="text/html", headers=_HEADERS)
