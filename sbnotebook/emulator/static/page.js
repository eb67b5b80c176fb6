"use strict";
const COLUMNS = ["active", "locked", "deferred", "scheduled", "dead_letter", "transfer_dead_letter", "size_bytes"];
const DEAD = new Set(["dead_letter", "transfer_dead_letter"]);
const rows = new Map();
const body = document.querySelector("#entities tbody");

function flatten(answer) {
  const queues = answer.queues.map(each => (
    {...each, kind: "queue", key: "q/" + each.name, path: each.name, says: said(each, "queue")}));
  const topics = answer.topics.flatMap(topic => [
    {...topic, kind: "topic", key: "t/" + topic.name, says: said(topic, "topic")},
    ...topic.subscriptions.map(each => ({
      ...each, kind: "subscription", key: "s/" + topic.name + "/" + each.name,
      path: topic.name + "/subscriptions/" + each.name,
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
  name.append(entity.path ? button(entity.name, () => openEntity(entity.path)) : entity.name);
  name.append(document.createElement("small"));
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
  document.querySelector("#entities").hidden = entities.length === 0;
  document.querySelector("#empty").hidden = entities.length > 0;
  write(document.querySelector("#tier"), answer.tier);
}

function button(text, act) {
  const made = document.createElement("button");
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}

// ------------------------------------------------------------------------------------------------ messages

const BOXES = {"Messages": "", "Dead letters": "/$deadletterqueue", "Transfer dead letters": "/$transfer/$deadletterqueue"};
const FIELDS = ["sequence_number", "enqueued_time", "state", "delivery_count", "message_id", "subject", "body"];
const panel = document.querySelector("#messages");

function openEntity(path) {
  const header = panel.querySelector("header");
  header.replaceChildren(document.createElement("h2"));
  write(header.firstChild, path);
  for (const [title, end] of Object.entries(BOXES)) header.append(button(title, () => load(path, end, 0)));
  header.append(button("Close", () => { panel.hidden = true; }));
  panel.hidden = false;
  load(path, "", 0);
}

async function load(path, end, from) {
  const answer = await fetch("/messages?" + new URLSearchParams({entity: path + end, from}));
  const found = answer.ok ? (await answer.json()).messages : [];
  for (const each of panel.querySelectorAll("header button")) {
    each.setAttribute("aria-pressed", BOXES[each.textContent] === end);
  }
  const lines = found.map(message => {
    const line = document.createElement("tr");
    for (const name of FIELDS) {
      const cell = line.appendChild(document.createElement("td"));
      cell.className = name === "body" ? "body" : "";
      const value = message[name];
      cell.textContent = value === null ? "" : name === "enqueued_time" ? new Date(value).toISOString() : value;
    }
    return line;
  });
  panel.querySelector("tbody").replaceChildren(...lines);
  const last = found.at(-1);
  const more = last ? [button("Next", () => load(path, end, last.sequence_number + 1))] : ["There are no messages."];
  panel.querySelector("p").replaceChildren(...(answer.ok ? more : ["The emulator does not show its messages without its key."]));
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
