/**
 * The search over all columns. The rows have only the beginnings of long texts, so the kernel is asked for the rest.
 */

import { later, made } from "./drawing.js";
import { focusedElement } from "./focused.js";

const SEARCH_DELAY = 120; // milliseconds from the last key to the search

/** The input in which words are typed; rows with all of them are shown. */
export class Search {
  constructor(store) {
    this.store = store;
    const label = "Search all columns: rows with all of these words are shown";
    const properties = { type: "search", class: "sbn-search", placeholder: "Search all columns", spellcheck: false };
    this.element = made("input", { ...properties, title: label, "aria-label": label });
    this.element.addEventListener("input", later(SEARCH_DELAY, () => this.find(this.element.value)));
  }

  /** Take over what another view of the table searches. */
  draw() {
    const { store } = this;
    const typed = store.filters.get("text")?.text ?? "";
    if (focusedElement() !== this.element || !typed) this.typed === typed || (this.element.value = typed);
    this.typed = typed;
    if (typed && store.state === "ready" && this.searched !== rowsOfSearch(store)) this.find(typed); // other rows came
  }

  find(typed) {
    const { store } = this;
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    this.typed = typed;
    this.searched = rowsOfSearch(store);
    store.searching = "";
    store.setFilter("text", words.length ? testOf(store, words, []) : null, { text: typed });
    if (words.length && store.hasLongTexts) this.findInWhole(words, typed);
  }

  /** Add the rows with a word in a part that the browser does not have. */
  async findInWhole(words, typed) {
    const { store } = this;
    const rows = rowsOfSearch(store);
    const isOld = () => rowsOfSearch(store) !== rows || store.filters.get("text")?.text !== typed;
    const say = (text) => {
      store.searching = text;
      store.tell("columns");
    };
    say("searching long texts…");
    try {
      const { buffers } = await store.request("search", { words });
      if (isOld()) return;
      store.searching = "";
      store.setFilter("text", testOf(store, words, buffers), { text: typed });
    } catch {
      if (!isOld()) say("only the beginnings of long texts were searched: the kernel is busy");
    }
  }
}

/** What a search has looked through. */
function rowsOfSearch({ load, total }) {
  return `${load} ${total}`;
}

/** Whether a row has all words, in its own text or in that which the kernel has searched. */
function testOf(store, words, bits) {
  const { load, total } = store;
  const isFound = (index, row) => {
    const isSame = bits.length > index && store.load === load && store.total === total; // other rows were not searched
    return isSame && (bits[index][row >> 3] & (1 << (row & 7))) !== 0;
  };
  return (row) => {
    const text = store.searchText(row);
    return words.every((word, index) => text.includes(word) || isFound(index, row));
  };
}
