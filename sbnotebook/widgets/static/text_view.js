// Sentences, tables and changes, which may hold the text of messages: show all of it as text, never as markup.

import { copyText } from "./clipboard.js";
import { FocusKeeper } from "./focus.js";
import { keepKeys } from "./focused.js";

const MOST_SHORT = 26; // characters of a value that stays on one line: a timestamp, or MaxDeliveryCountExceeded

/** An element with a class and text. */
function textElement(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A table with a caption that opens and closes it. */
function textTable({ caption, columns, rows, open }) {
  const table = textElement("table", "sbn-prose-table");
  const head = table.createTHead().insertRow();
  for (const name of columns) {
    const cell = textElement("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) line.append(Array.isArray(value) ? changeCell(value) : textCell(value));
  }
  const scroll = textElement("div", "sbn-prose-scroll");
  scroll.append(table);
  if (!caption) return scroll;
  const details = textElement("details", "sbn-prose-details");
  details.open = open;
  details.append(textElement("summary", "", caption), scroll);
  return details;
}

function textCell(value) {
  const text = String(value);
  const kind = text.length > MOST_SHORT ? "sbn-prose-long" : "sbn-prose-short";
  return textElement("td", typeof value === "number" ? "sbn-prose-number" : kind, text);
}

/** Lines that were removed, added, or stay, each with its mark. */
function changeCell(lines) {
  const cell = textElement("td", "sbn-prose-change");
  const kinds = { "-": "sbn-prose-removed", "+": "sbn-prose-added" };
  for (const [mark, text] of lines) {
    const line = textElement("div", kinds[mark] ?? "sbn-prose-same");
    line.append(textElement("span", "sbn-prose-mark", mark), textElement("span", "", text));
    cell.append(line);
  }
  return cell;
}

/** A text to copy, with a line below it that says whether it was copied. */
function codeBlock({ text }) {
  const block = textElement("div", "sbn-prose-copied");
  const code = textElement("pre", "sbn-prose-code", text);
  code.tabIndex = 0;
  code.setAttribute("aria-label", "Code");
  const said = textElement("p", "sbn-prose-quiet", "");
  said.setAttribute("role", "status");
  block.append(code, said);
  return block;
}

/** Copy the code that is shown, or select it for the user to copy. */
async function copyCode(root) {
  const [code, said] = root.querySelector(".sbn-prose-copied")?.children ?? [];
  if (!code) return;
  const copied = await copyText(code.textContent, root);
  if (!copied) getSelection().selectAllChildren(code);
  said.textContent = copied ? "Copied." : "The browser does not let the page copy: the text is selected, copy it.";
}

function textBlock(block) {
  if (block.kind === "table") return textTable(block);
  if (block.kind === "code") return codeBlock(block);
  const element = textElement(block.kind === "title" ? "h4" : "p", `sbn-prose-${block.tone}`, block.text);
  // Screen readers announce errors at once, and everything else later.
  if (block.kind !== "title") element.setAttribute("role", block.tone === "error" ? "alert" : "status");
  return element;
}

function render({ model, el }) {
  const root = textElement("div", "sbn-prose");
  keepKeys(root);
  const draw = () => root.replaceChildren(...model.get("blocks").map(textBlock));
  draw();
  el.append(root);
  const keeper = model.get("keeps_focus") ? new FocusKeeper(root) : null;
  if (keeper) root.tabIndex = -1;
  const acts = { "change:blocks": draw, "change:forwards": () => keeper?.forward(), "change:copies": () => copyCode(root) };
  for (const [name, act] of Object.entries(acts)) model.on(name, act);
  return () => {
    keeper?.dispose();
    for (const [name, act] of Object.entries(acts)) model.off(name, act);
  };
}

/** Tells the kernel that this was loaded, so that it need not show the same in a plain box. */
function initialize({ model }) {
  model.send({ kind: "ready" });
}

export default { initialize, render };
