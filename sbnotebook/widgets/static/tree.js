/**
 * Entities as a tree with their counts. Names come from the service: they are shown as text and never as markup.
 */

import { made, roving } from "./drawing.js";
import { focusedElement } from "./focused.js";

const TREE_COLUMNS = [
  ["active", "Active", "messages that can be received, deferred ones counted with them"],
  ["scheduled", "Later", "scheduled messages, which become active later"],
  ["dead", "Dead", "messages in the dead-letter queue"],
];

const ITEMS = "[role=treeitem]";
const NOT_FOUND = "No entity has this in its name.";

/** A number in at most five characters. */
function compact(number) {
  if (number < 10_000) return String(number);
  if (number < 999_500) return `${(number / 1e3).toFixed(number < 99_950 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(1)}M`;
}

/** The entry of an entity: its row of the model, its name, and its parent. */
function nodesOf(row) {
  const [topic, subscription] = row.path.split(/\/subscriptions\/(?=[^/]*$)/);
  const node = { ...row, name: subscription ?? topic, parent: subscription ? topic : "" };
  if (row.kind === "topic") return [node];
  const below = { parent: row.path, kind: "sub-queue", active: null, scheduled: null };
  return [
    node,
    { ...below, path: `${row.path}/$dlq`, name: "dead letters", dead: row.dead },
    { ...below, path: `${row.path}/$transfer`, name: "transfer dead letters", dead: row.transfer },
  ];
}

/** The nodes to show, in their order: each with its row of the model, level, and whether it is open. */
function visibleNodes(rows, open, sought) {
  const children = new Map();
  for (const row of rows.flatMap(nodesOf)) {
    if (!children.has(row.parent)) children.set(row.parent, []);
    children.get(row.parent).push(row);
  }
  const found = [];
  const visit = (row, level, within) => {
    const own = within || row.path.toLowerCase().includes(sought) || row.name.toLowerCase().includes(sought);
    const below = children.get(row.path) ?? [];
    const place = found.push(null) - 1;
    const isOpen = open.has(row.path);
    let hits = 0;
    // Search closed branches, too, and open those with a match.
    if (isOpen || (sought && !own)) for (const child of below) hits += visit(child, level + 1, own && isOpen) ? 1 : 0;
    if (!own && !hits) {
      found.length = place;
      return false;
    }
    const parent = below.length > 0 || row.kind === "topic";
    found[place] = { row, level, parent, open: parent && (isOpen || (!own && hits > 0)) };
    return true;
  };
  for (const row of children.get("") ?? []) visit(row, 1, !sought);
  return found;
}

class EntityTree {
  constructor(tell) {
    this.tell = tell;
    this.told = {}; // what the kernel knows
    const label = { type: "search", placeholder: "Filter entities", "aria-label": "Filter entities by name" };
    this.filter = made("input", label);
    this.filter.addEventListener("input", () => this.draw());
    this.filter.addEventListener("keydown", (event) => {
      event.stopPropagation(); // else the notebook takes it for a command
      if (event.key === "ArrowDown") this.focus(0);
    });
    const titles = TREE_COLUMNS.map(([, name, title]) => made("span", { class: "sbn-tree-count", title }, name));
    const name = made("span", { class: "sbn-tree-name" }, "Entity");
    const head = made("div", { class: "sbn-tree-row sbn-tree-head", "aria-hidden": "true" }, name, ...titles);
    this.list = made("div", { class: "sbn-tree-list", role: "tree", "aria-label": "Queues, topics and subscriptions" });
    roving(this.list, ITEMS);
    this.list.addEventListener("focusin", ({ target }) => {
      const place = this.items.indexOf(target);
      if (place >= 0) this.focused = this.nodes[place].row.path;
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.click(event));
    this.foot = made("div", { class: "sbn-column sbn-tree-foot" });
    this.root = made("div", { class: "sbn-tree" }, made("div", { class: "sbn-field" }, this.filter), head, this.list, this.foot);
  }

  /** Take what the kernel says. What the user has chosen and opened stays until the kernel says something else. */
  take(node) {
    const { told } = this;
    if (node.value !== told.value) this.chosen = node.value;
    if (String(node.expanded) !== String(told.expanded)) this.open = new Set(node.expanded);
    this.focused ??= node.value;
    this.told = node;
    this.draw();
  }

  draw() {
    const sought = this.filter.value.trim().toLowerCase();
    const hadFocus = this.list.contains(focusedElement());
    this.nodes = visibleNodes(this.told.rows, this.open, sought);
    if (!this.nodes.some((node) => node.row.path === this.focused)) this.focused = this.nodes[0]?.row.path;
    this.items = this.nodes.map((node) => this.item(node));
    this.list.replaceChildren(...this.items);
    if (!this.items.length) this.list.append(made("div", { class: "sbn-tree-empty" }, sought ? NOT_FOUND : this.told.hint));
    if (hadFocus) this.focus(this.place(), { preventScroll: true }); // the user may have scrolled elsewhere
  }

  item({ row, level, parent, open }) {
    const chosen = row.path === this.chosen;
    const twist = made("span", { class: "sbn-tree-twist" }, parent ? (open ? "▾" : "▸") : "");
    const name = made("span", { class: "sbn-tree-name", title: row.path }, twist, made("span", {}, row.name));
    name.style.paddingInlineStart = `${(level - 1) * 14}px`;
    if (level === 1) name.append(made("span", { class: "sbn-tree-kind" }, row.kind));
    const said = [row.name, row.kind];
    // A sub-queue has one count, and its name the room of the others.
    const columns = row.kind === "sub-queue" ? TREE_COLUMNS.slice(-1) : TREE_COLUMNS;
    const cells = columns.map(([key, title]) => {
      const count = row[key];
      if (count) said.push(`${count} ${title.toLowerCase()}`);
      const shown = count == null ? {} : { title: count.toLocaleString("en-US") };
      return made("span", { class: `sbn-tree-count sbn-${key}${count ? "" : " sbn-zero"}`, ...shown }, count == null ? "" : compact(count));
    });
    return made(
      "div",
      {
        class: `sbn-tree-row${chosen ? " sbn-chosen" : ""}`,
        role: "treeitem",
        "aria-level": level,
        "aria-selected": chosen,
        ...(parent ? { "aria-expanded": open } : {}),
        "aria-label": said.join(", "),
        tabIndex: row.path === this.focused ? 0 : -1,
      },
      name,
      ...cells,
    );
  }

  place() {
    return this.nodes.findIndex((node) => node.row.path === this.focused);
  }

  focus(place, options) {
    this.items[place]?.focus(options);
  }

  choose({ row }) {
    this.chosen = row.path;
    this.change(row);
  }

  setOpen({ row }, isOpen) {
    if (isOpen) this.open.add(row.path);
    else this.open.delete(row.path);
    this.change(row);
  }

  change({ path }) {
    this.focused = path;
    this.draw();
    this.tell({ chosen: this.chosen, expanded: [...this.open] });
  }

  click(event) {
    const place = this.items.indexOf(event.target.closest(ITEMS));
    if (place < 0) return;
    const node = this.nodes[place];
    if (event.target.classList.contains("sbn-tree-twist") && node.parent) this.setOpen(node, !node.open);
    else this.choose(node);
    this.focus(this.place());
  }

  key(event) {
    const place = this.place();
    const node = this.nodes[place];
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const parent = () => this.nodes.findLastIndex((each, at) => at < place && each.level < node.level);
    const acts = {
      ArrowRight: () => (node.parent && !node.open ? this.setOpen(node, true) : node.open && this.focus(place + 1)),
      ArrowLeft: () => (node.parent && node.open ? this.setOpen(node, false) : this.focus(parent())),
      Enter: () => this.choose(node),
      " ": () => this.choose(node),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }
}

/** The tree block: `blocks` are at its foot. */
export function drawTree(view, place) {
  const tree = new EntityTree((value) => view.tell(place, value));
  return { element: tree.root, inner: tree.foot, update: (node) => tree.take(node) };
}
