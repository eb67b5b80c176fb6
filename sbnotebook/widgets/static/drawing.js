/**
 * What all views have in common: elements, when they draw, how they count, and how keys move through a list.
 */

import { focusedElement } from "./focused.js";
import { inSlices } from "./slices.js";

const PAUSE = 150; // milliseconds
const figures = new Intl.NumberFormat("en");

/** An element with properties or attributes, and children; text is always text. */
export function made(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** An element of a drawing, with its attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A function that runs another when it was not called for a while. */
export function later(delay, action) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, delay);
  };
}

/** A number as people write it. */
export function figure(number) {
  return figures.format(number);
}

/** So many of something, in words. */
export function counted(number, noun) {
  return `${figure(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A button; its text is text. */
export function pressable(text, action, properties = {}) {
  const button = made("button", { type: "button", ...properties, class: `sbn-button ${properties.class ?? ""}` }, text);
  button.addEventListener("click", action);
  return button;
}

/** A button that opens a box below it, which it `fills` before; Escape, a button in the box, or the focus elsewhere close it. */
export function dropdown(name, box, fill = () => {}) {
  const open = (on) => {
    if (on) fill();
    box.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
    if (on) box.querySelector("input, button")?.focus();
  };
  const close = (isBack) => {
    if (isBack && box.contains(focusedElement())) button.focus();
    open(false);
  };
  const button = pressable(name, () => open(box.hidden), { "aria-expanded": "false" });
  const element = made("span", { class: "sbn-more" }, button, box);
  box.className = "sbn-more-items";
  box.hidden = true;
  box.addEventListener("click", ({ target }) => target.closest("button") && close(false));
  element.addEventListener("keydown", ({ key }) => key === "Escape" && close(true));
  element.addEventListener("focusout", ({ relatedTarget }) => element.contains(relatedTarget) || close(false));
  return element;
}

/** A function that has something drawn soon, in slices: once, however often it is asked for, and not without a pause. */
export function drawnSoon(draw, signal) {
  let timer;
  let isAsked = false;
  let last = -Infinity;
  const begin = async () => {
    isAsked = false;
    try {
      await inSlices(draw(), signal);
    } finally {
      last = performance.now();
      timer = undefined;
    }
    if (isAsked) ask();
  };
  const ask = () => {
    isAsked = true; // also during drawing: then it is drawn again
    if (!signal.aborted) timer ??= setTimeout(begin, Math.max(0, last + PAUSE - performance.now()));
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  return ask;
}

/** Put elements in this order under a parent. The focus stays, and elements in place do not move. */
export function arrange(parent, elements) {
  const focused = focusedElement();
  const kept = new Set(elements);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove(); // or all after it would move, under a click
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
  if (focused && focused !== focusedElement() && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Sort entries by the places that their keys had before; new ones come last. */
export function sortAsBefore(entries, keyOf, before) {
  const places = new Map(before.map((key, place) => [key, place]));
  const place = (entry) => places.get(keyOf(entry)) ?? places.size;
  return entries.sort((one, other) => place(one) - place(other));
}

/** Make a list one stop of the Tab key, in which the arrow keys, Home and End move. */
export function roving(list, items, [back, forward] = ["ArrowUp", "ArrowDown"]) {
  list.addEventListener("keydown", (event) => {
    if (!event.target.matches(items)) return;
    const all = [...list.querySelectorAll(items)];
    const place = all.indexOf(event.target);
    const next = { [back]: all[place - 1], [forward]: all[place + 1], Home: all[0], End: all.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  list.addEventListener("focusin", (event) => event.target.matches(items) && oneStop(list, items, event.target));
}

/** Let Tab stop at one item of a list only: the one that had the focus, or the first. */
export function oneStop(list, items, chosen) {
  const all = [...list.querySelectorAll(items)];
  const stop = all.includes(chosen) ? chosen : (all.find((item) => item.tabIndex === 0) ?? all[0]);
  for (const item of all) item.tabIndex = item === stop ? 0 : -1;
}
