/**
 * The buttons and fields of panels. A half-typed text stays while the kernel draws.
 */

import { arrange, made } from "./drawing.js";
import { focusedElement } from "./focused.js";
import { drawnIcon } from "./icons.js";

export function drawButton(view, place) {
  const element = made("button", { type: "button", class: "sbn-button" });
  const update = ({ name, icon, tooltip, tone, is_enabled: isEnabled }) => {
    element.replaceChildren(...[drawnIcon(icon), name].filter(Boolean));
    element.title = tooltip;
    element.disabled = !isEnabled;
    element.dataset.tone = tone;
  };
  element.addEventListener("click", () => view.tell(place));
  return { element, update };
}

const INPUTS = {
  text: () => made("input", { type: "text" }),
  suggest: () => made("input", { type: "text" }),
  number: () => made("input", { type: "number" }),
  area: () => made("textarea", { spellcheck: false, rows: 6 }),
  code: () => made("textarea", { spellcheck: false, rows: 8 }),
  choice: () => made("select", {}),
  list: () => made("select", { size: 6 }),
  check: () => made("input", { type: "checkbox" }),
};
const FIELDS = `sbn-${Math.random().toString(36).slice(2)}`; // each panel of a page loads this script
let fieldNumber = 0;

export function drawField(view, place, node) {
  if (node.type === "toggles") return drawToggles(view, place);
  const input = INPUTS[node.type]();
  input.id = `${FIELDS}-${fieldNumber++}`;
  const label = made("label", { htmlFor: input.id });
  const problem = made("p", { class: "sbn-problem", id: `${input.id}-problem` });
  const parts = node.type === "check" ? [input, label] : [label, input];
  const element = made("div", { class: "sbn-field", "data-type": node.type }, ...parts, problem);
  const list = node.type === "suggest" ? made("datalist", { id: `${input.id}-list` }) : null;
  if (list) {
    element.append(list);
    input.setAttribute("list", list.id);
  }
  let told = node; // what the kernel knows
  let value;
  const read = READ[node.type] ?? (() => input.value);
  const tell = () => {
    const now = read(input, told);
    if (now === null || now === value) return;
    value = now;
    view.tell(place, now);
  };
  const show = () => (node.type === "check" ? (input.checked = value) : "selectedIndex" in input ? (input.selectedIndex = value) : (input.value = value));
  const update = (now) => {
    told = now;
    label.textContent = now.name;
    label.hidden = !now.name;
    element.dataset.size = now.size;
    input.title = now.tooltip;
    input.disabled = !now.is_enabled;
    if ("placeholder" in input) input.placeholder = now.hint;
    problem.textContent = now.problem;
    problem.hidden = !now.problem;
    input.setAttribute("aria-invalid", String(Boolean(now.problem)));
    if (now.problem) input.setAttribute("aria-describedby", problem.id);
    else input.removeAttribute("aria-describedby");
    if (list) list.replaceChildren(...now.options.map((each) => made("option", { value: each })));
    else if (input.options) offer(input, now.options);
    if (node.type === "number") Object.assign(input, { min: now.limits?.[0] ?? "", max: now.limits?.[1] ?? "", step: now.is_whole ? 1 : "any" });
    // A half-typed text stays; the kernel hears of it when it is done.
    const isTyped = input === focusedElement() && value !== undefined && read(input, told) !== value;
    value = now.value;
    if (!isTyped) show();
  };
  input.addEventListener("change", () => {
    tell();
    if (node.type === "number") input.value = value; // it may be cut to its limits
  });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the notebook has keys of its own
    if (event.key === "Enter" && input.type === "text") tell();
  });
  return { element, update };
}

const READ = {
  check: (input) => input.checked,
  choice: (input) => input.selectedIndex,
  list: (input) => (input.selectedIndex < 0 ? null : input.selectedIndex),
  number(input, { limits, is_whole: isWhole, value }) {
    const number = Number(input.value);
    if (input.value === "" || Number.isNaN(number)) return value;
    const [least, most] = limits ?? [-Infinity, Infinity];
    return Math.min(most, Math.max(least, isWhole ? Math.trunc(number) : number));
  },
};

function offer(select, options) {
  const shown = [...select.options].map(({ text }) => text);
  if (shown.join("\n") !== options.join("\n")) select.replaceChildren(...options.map((each) => made("option", {}, each)));
}

function drawToggles(view, place) {
  const element = made("div", { class: "sbn-toggles", role: "group" });
  const update = ({ name, options, value, tooltip, is_enabled: isEnabled }) => {
    element.setAttribute("aria-label", name || tooltip);
    const toggle = (label, index) => {
      const button = element.children[index] ?? made("button", { type: "button", class: "sbn-button" });
      button.textContent = label;
      button.disabled = !isEnabled;
      button.setAttribute("aria-pressed", String(index === value));
      button.onclick = () => view.tell(place, index);
      return button;
    };
    arrange(element, options.map(toggle));
  };
  return { element, update };
}
