/**
 * A panel as one anywidget, which draws the panel's parts and passes clicks and values on.
 *
 * Every part has its model in the page: in front ends with views of ipywidgets that of ipywidgets, in others, such as marimo,
 * one as in the interface of anywidget's hosts (anywidget.dev/en/afm). The parts have the classes that JupyterLab gives them.
 * The table and the words of plans have scripts of their own, which draw them.
 */

import { arrange } from "./drawing.js";
import { keepKeys } from "./focused.js";
import { made } from "./header.js";
import { drawnIcon } from "./icons.js";

const REFERENCE = "IPY_MODEL_";
const LAYOUT = [
  ...["align_items", "display", "flex", "flex_flow", "grid_gap", "grid_template_columns", "height", "justify_content"],
  ...["margin", "max_height", "max_width", "min_height", "min_width", "overflow", "padding", "visibility", "width"],
];
const BOXES = { HBoxView: "widget-hbox", GridBoxView: "widget-gridbox" };
const SAVED = "__MARIMO_STATIC__"; // in a page that marimo has exported: it has no kernel, so the record takes the panel's place
const TOLD_AGAIN = [1_000, 5_000]; // milliseconds after which this tells the kernel again that it can draw
const FAILED = "This part of the panel cannot be shown: ";
const OLD = "This panel needs a newer front end, such as marimo 0.25: it cannot draw tables in panels.";

/** One widget of a panel. Its place is there at once, and is filled when its model is. */
class Part {
  /**
   * @param {{manager: object, host: object}} page finds models, and draws widgets with code of their own
   * @param {string|object|null} reference of the model, or the model of ipywidgets; null where the model is given
   */
  constructor(page, reference, model = null) {
    this.page = page;
    this.reference = reference;
    this.place = made("div", { class: "sbn-part" });
    this.end = new AbortController();
    this.fill(model).catch((error) => this.place.append(FAILED, String(error)));
  }

  async fill(model) {
    this.model = model ?? (await this.modelOf(this.reference));
    if (this.end.signal.aborted) return;
    this.element = model ? drawBox(this) : (VIEWS[this.model.get("_view_name")] ?? drawBox)(this);
    this.watch(["_dom_classes"], (classes) => {
      this.element.classList.remove(...(this.classes ?? []));
      this.element.classList.add(...classes);
      this.classes = classes;
    });
    this.place.replaceChildren(this.element);
    this.watch(["layout"], (reference) => this.lay(reference));
    const live = () => {
      const isOver = this.model.comm_live === false;
      this.element.classList.toggle("jupyter-widgets-disconnected", isOver);
      if (isOver && "disabled" in this.element) this.element.disabled = true; // a click could not reach the kernel
    };
    this.listen(this.model, "comm_live_update", live);
    live();
  }

  async lay(reference) {
    const layout = await this.modelOf(reference);
    const lay = () => {
      if (this.model.get("layout") !== reference) return; // the widget has another one by now
      for (const name of LAYOUT) this.element.style[name.replace(/_./g, ([, letter]) => letter.toUpperCase())] = layout.get(name) ?? "";
    };
    for (const name of LAYOUT) this.listen(layout, `change:${name}`, lay);
    lay();
  }

  modelOf(reference) {
    return typeof reference === "string" ? this.page.manager.get_model(reference.slice(REFERENCE.length)) : reference;
  }

  /** Call a function when a model says something, as long as the part is shown. */
  listen(model, name, action) {
    const { signal } = this.end;
    if (signal.aborted) return;
    model.on(name, action);
    signal.addEventListener("abort", () => model.off(name, action));
  }

  /** Call a function with some values of the model, now and when one of them changes. */
  watch(names, action) {
    const act = () => this.end.signal.aborted || action(...names.map((name) => this.model.get(name)));
    for (const name of names) this.listen(this.model, `change:${name}`, act);
    act();
  }

  /** Tell the kernel a value. */
  set(name, value) {
    if (this.model.get(name) === value) return;
    this.model.set(name, value);
    this.model.save_changes();
  }
}

// ------------------------------------------------------------ views

function drawBox(part) {
  const { page, model } = part;
  const element = made("div", { class: `jupyter-widgets widget-box ${BOXES[model.get("_view_name")] ?? "widget-vbox"}` });
  const parts = new Map();
  part.watch(["children"], (references) => {
    for (const reference of references) if (!parts.has(reference)) parts.set(reference, new Part(page, reference));
    for (const [reference, gone] of parts) {
      if (references.includes(reference)) continue;
      gone.end.abort();
      parts.delete(reference);
    }
    arrange(element, references.map((reference) => parts.get(reference).place));
  });
  part.end.signal.addEventListener("abort", () => parts.forEach(({ end }) => end.abort()));
  return element;
}

/** A widget with code of its own; the page adds its style where the element is, so it must be there first. */
function drawWidget(part) {
  const { manager, host } = part.page;
  const { signal } = part.end;
  const element = made("div", { class: "jupyter-widgets" });
  const draw = async () => {
    if (manager.create_view) {
      const view = await manager.create_view(part.model);
      if (signal.aborted) return view.remove();
      element.append(view.el);
      return signal.addEventListener("abort", () => view.remove());
    }
    if (!host?.getWidget) return element.append(OLD);
    const widget = await host.getWidget(`anywidget:${part.reference.slice(REFERENCE.length)}`);
    return widget.render({ el: element, signal });
  };
  queueMicrotask(() => draw().catch((error) => element.append(FAILED, String(error))));
  return element;
}

function drawButton(part) {
  const element = made("button", { type: "button", class: "jupyter-widgets jupyter-button widget-button" });
  part.watch(["description", "icon", "tooltip", "disabled", "button_style"], (description, icon, tooltip, disabled, style) => {
    element.replaceChildren(...[drawnIcon(icon), description].filter(Boolean));
    nameWithoutWords(element, description, tooltip);
    element.title = tooltip ?? "";
    element.disabled = disabled;
    for (const each of ["primary", "success", "info", "warning", "danger"]) element.classList.toggle(`mod-${each}`, each === style);
  });
  element.addEventListener("click", () => part.model.send({ event: "click" }));
  return element;
}

function drawLabel(part) {
  const element = made("div", { class: "jupyter-widgets widget-inline-hbox widget-label" });
  part.watch(["value", "tooltip"], (value, tooltip) => Object.assign(element, { textContent: value, title: tooltip ?? "" }));
  withStyle(part, (style) => (element.style.fontWeight = style.get("font_weight") ?? ""));
  return element;
}

/** HTML that the kernel has made and escaped; a document that is parsed runs no scripts. */
function drawHtml(part) {
  const element = made("div", { class: "jupyter-widgets widget-html" });
  part.watch(["value"], (value) => {
    const { head, body } = new DOMParser().parseFromString(value, "text/html");
    element.replaceChildren(...head.childNodes, ...body.childNodes);
  });
  return element;
}

function drawProgress(part) {
  const element = made("progress", { class: "jupyter-widgets widget-progress", "aria-label": "Progress" });
  part.watch(["min", "max", "value"], (min, max, value) => {
    element.max = Math.max(max - min, Number.MIN_VALUE);
    element.value = value - min;
  });
  return element;
}

async function withStyle(part, act) {
  act(await part.modelOf(part.model.get("style")));
}

/** Name an element for screen readers where it has no visible name. */
function nameWithoutWords(element, description, other) {
  if (description || !other) element.removeAttribute("aria-label");
  else element.setAttribute("aria-label", other);
}

/** A field with its name before it. */
function named(part, kind, input) {
  const label = made("label", { class: "widget-label" });
  const element = made("div", { class: `jupyter-widgets widget-inline-hbox ${kind}` }, label, input);
  input.id = `sbn-${Math.random().toString(36).slice(2)}`;
  label.htmlFor = input.id;
  part.watch(["description", "tooltip", "disabled"], (description, tooltip, disabled) => {
    label.textContent = description;
    label.hidden = !description;
    nameWithoutWords(input, description, tooltip);
    input.title = tooltip ?? "";
    input.disabled = disabled;
  });
  withStyle(part, (style) => (label.style.width = style.get("description_width") ?? ""));
  input.addEventListener("keydown", (event) => event.stopPropagation()); // the notebook has keys of its own
  return element;
}

/** Show a value in a field, and tell the kernel what a user writes there. */
function entered(part, input, read = (text) => text) {
  part.watch(["value"], (value) => String(value) === input.value || (input.value = value));
  const tell = () => part.set("value", read(input.value));
  input.addEventListener("change", () => {
    tell();
    input.value = part.model.get("value"); // a number may be cut to its limits
  });
  input.addEventListener("input", () => part.model.get("continuous_update") && tell());
}

function drawText(part) {
  const input = made("input", { type: "text" });
  const element = named(part, "widget-text", input);
  part.watch(["placeholder"], (placeholder) => (input.placeholder = placeholder ?? ""));
  entered(part, input);
  input.addEventListener("keydown", ({ key }) => key === "Enter" && part.set("value", input.value));
  return element;
}

function drawCombobox(part) {
  const element = drawText(part);
  const input = element.querySelector("input");
  const list = made("datalist", { id: `${input.id}-list` });
  input.setAttribute("list", list.id);
  element.append(list);
  part.watch(["options"], (options) => list.replaceChildren(...options.map((value) => made("option", { value }))));
  return element;
}

function drawTextarea(part) {
  const input = made("textarea", { spellcheck: false });
  const element = named(part, "widget-textarea", input);
  part.watch(["placeholder", "rows"], (placeholder, rows) => {
    input.placeholder = placeholder ?? "";
    if (rows) input.rows = rows;
  });
  entered(part, input);
  return element;
}

function drawNumber(part) {
  const isWhole = part.model.get("_view_name") === "IntTextView";
  const input = made("input", { type: "number" });
  const element = named(part, "widget-text", input);
  const limit = (min, max, step) => Object.assign(input, { min: min ?? "", max: max ?? "", step: step ?? (isWhole ? 1 : "any") });
  part.watch(["min", "max", "step"], limit);
  const within = (number) => Math.min(part.model.get("max") ?? number, Math.max(part.model.get("min") ?? number, number));
  const read = (number) => within(isWhole ? Math.trunc(number) : number);
  entered(part, input, (text) => (text === "" || Number.isNaN(Number(text)) ? part.model.get("value") : read(Number(text))));
  return element;
}

function drawChoice(part) {
  const isList = part.model.get("_view_name") === "SelectView";
  const input = made("select", {});
  const element = named(part, isList ? "widget-select" : "widget-dropdown", input);
  if (isList) part.watch(["rows"], (rows) => (input.size = rows ?? 5));
  part.watch(["_options_labels", "index"], (labels, index) => {
    const shown = [...input.options].map(({ text }) => text);
    if (shown.join("\n") !== labels.join("\n")) input.replaceChildren(...labels.map((label) => made("option", {}, label)));
    input.selectedIndex = index ?? -1;
  });
  input.addEventListener("change", () => part.set("index", input.selectedIndex));
  return element;
}

function drawToggles(part) {
  const buttons = made("div", { class: "widget-toggle-buttons", role: "group" });
  const element = made("div", { class: "jupyter-widgets widget-inline-hbox" }, buttons);
  part.watch(["description", "tooltip"], (description, tooltip) => nameWithoutWords(buttons, "", description || tooltip));
  part.watch(["_options_labels", "index", "tooltips", "disabled"], (labels, chosen, tooltips, disabled) => {
    const toggle = (label, index) => {
      const isOn = index === chosen;
      const properties = { type: "button", title: tooltips?.[index] ?? "", disabled, "aria-pressed": String(isOn) };
      const button = buttons.children[index] ?? made("button", { class: "jupyter-button widget-toggle-button" });
      for (const [name, value] of Object.entries(properties)) name in button ? (button[name] = value) : button.setAttribute(name, value);
      button.textContent = label;
      button.classList.toggle("mod-active", isOn);
      button.onclick = () => part.set("index", index);
      return button;
    };
    arrange(buttons, labels.map(toggle));
  });
  return element;
}

function drawCheckbox(part) {
  const input = made("input", { type: "checkbox" });
  const words = made("span", {});
  const label = made("label", { class: "widget-label-basic" }, input, words);
  const element = made("div", { class: "jupyter-widgets widget-inline-hbox widget-checkbox" }, label);
  part.watch(["value", "description", "disabled", "tooltip"], (value, description, disabled, tooltip) => {
    Object.assign(input, { checked: value, disabled });
    Object.assign(label, { title: tooltip ?? "" });
    words.textContent = description;
  });
  input.addEventListener("change", () => part.set("value", input.checked));
  return element;
}

const VIEWS = {
  AnyView: drawWidget,
  ButtonView: drawButton,
  CheckboxView: drawCheckbox,
  ComboboxView: drawCombobox,
  DropdownView: drawChoice,
  FloatTextView: drawNumber,
  HTMLView: drawHtml,
  IntTextView: drawNumber,
  LabelView: drawLabel,
  ProgressView: drawProgress,
  SelectView: drawChoice,
  TextView: drawText,
  TextareaView: drawTextarea,
  ToggleButtonsView: drawToggles,
};

let isDrawn = false;

export default {
  initialize({ model }) {
    const tell = () => model.send({ kind: "ready" });
    // Even where it is drawn at once: a kernel that does not hear it draws plain widgets instead.
    tell();
    // A page that is being loaded may miss what the kernel does then, so this says it again.
    for (const wait of TOLD_AGAIN) setTimeout(() => isDrawn || tell(), wait);
  },
  render({ model, el, host }) {
    isDrawn = true;
    const panel = new Part({ manager: model.widget_manager, host }, null, model);
    panel.place.classList.add("sbn-panel-view");
    panel.place.classList.toggle("sbn-saved", SAVED in window);
    keepKeys(panel.place);
    el.replaceChildren(panel.place);
    return () => panel.end.abort();
  },
};
