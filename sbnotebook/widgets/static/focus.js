/**
 * The keyboard focus in a panel: it goes to what a click has opened, and does not drop to the page when the element that
 * has it goes.
 */

import { focusedElement } from "./focused.js";

const OUTER_PANEL = ".sbn-panel";
const ACTIONS = ".sbn-actions";
const FORM = ".sbn-form";
const MAIN_BUTTON = "[data-tone=danger], [data-tone=primary], .mod-danger, .mod-primary"; // which must be in sight where there is no room for all
const FOCUSABLE = "input:enabled, select:enabled, textarea:enabled, button:enabled, summary, [tabindex='0']";
const SETTLED = 100; // milliseconds after which a form has its fields, which are drawn one by one

/** The first element that can have the focus. */
function firstStop(element) {
  return [...element.querySelectorAll(FOCUSABLE)].find((each) => each.checkVisibility());
}

export class FocusKeeper {
  constructor(words) {
    this.words = words;
    const root = words.getRootNode();
    this.root = root instanceof ShadowRoot ? root : document; // marimo draws each panel in a shadow root
    this.path = []; // the element that had the focus last, and those around it
    this.openers = new WeakMap(); // the buttons that opened forms
    this.opener = null; // of the form that is being drawn
    this.listen = new AbortController();
    this.observer = new MutationObserver((changes) => this.look(changes));
    const on = (type, action) => this.root.addEventListener(type, action, { signal: this.listen.signal });
    on("focusin", ({ target }) => this.note(target));
    on("focusout", ({ target }) => setTimeout(() => this.left(target)));
  }

  get last() {
    return this.path[0] ?? null;
  }

  get isDropped() {
    return !document.activeElement || document.activeElement === document.body;
  }

  note(target) {
    const around = [];
    for (let at = this.words; at; at = at.parentElement) if (at.matches(OUTER_PANEL)) around.push(at);
    const panel = around.at(-1);
    this.path = [];
    if (!panel?.contains(target)) return;
    if (panel !== this.panel) {
      this.panel = panel;
      this.observer.disconnect();
      this.observer.observe(panel, { childList: true, subtree: true });
    }
    for (let at = target; at !== panel; at = at.parentElement) this.path.push(at);
    this.path.push(panel);
  }

  /** Forget the element where a click beside the panel takes the focus away; not where its button is disabled. */
  left(target) {
    if (target === this.last && this.isDropped && target.isConnected && !target.disabled) this.path = [];
  }

  look(changes) {
    const { last } = this;
    if (last?.matches("button") && changes.some((change) => change.addedNodes.length)) {
      clearTimeout(this.timer);
      const form = last.closest(FORM);
      const isEarly = form && !this.openers.has(form); // the user is in the form before all of it is drawn
      if (!isEarly || !this.opener) this.opener = last;
      this.timer = setTimeout(() => this.enter(), SETTLED);
    }
    if (last && !last.isConnected && this.isDropped) this.lost();
  }

  /** Go into the form that a button has opened, unless the user went elsewhere meanwhile. */
  enter() {
    const { opener } = this;
    this.opener = null;
    for (const form of this.panel.querySelectorAll(FORM)) {
      const stop = firstStop(form);
      if (this.openers.has(form) || !stop) continue; // a form without fields is entered when they are drawn
      this.openers.set(form, opener);
      if (focusedElement() !== opener) continue;
      stop.focus();
      form.scrollIntoView({ block: "nearest" }); // its buttons, too
    }
  }

  /** Move the focus from an element that is gone to the one in its place, or back to its opener. */
  lost() {
    const { path } = this;
    const form = path.find((each) => !each.isConnected && each.matches(FORM));
    const opener = form && this.openers.get(form);
    const near = path.filter((each) => each.isConnected);
    const isAction = near[0]?.closest(ACTIONS);
    const next = opener?.isConnected ? opener : isAction ? this.words : near.map(firstStop).find(Boolean);
    (next ?? this.words).focus();
  }

  /** Bring the words into sight, and give them the focus, where they have it already or a button of the panel has it. */
  forward() {
    const at = focusedElement();
    const isOurs = this.isDropped ? this.last : at === this.words || (this.panel?.contains(at) && at.matches("button"));
    if (!isOurs) return;
    this.words.focus({ preventScroll: true });
    const show = () => {
      const actions = this.words.closest(ACTIONS);
      for (const each of [actions, actions?.querySelector(MAIN_BUTTON)]) each?.scrollIntoView({ block: "nearest" });
    };
    show();
    clearTimeout(this.showing);
    this.showing = setTimeout(show, SETTLED); // the elements above it may have another height by then
  }

  dispose() {
    clearTimeout(this.timer);
    clearTimeout(this.showing);
    this.listen.abort();
    this.observer.disconnect();
  }
}
