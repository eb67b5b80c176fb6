// Icons of buttons, as lines of SVG, which need no font.

import { svg } from "./drawing.js";

const SIZE = 16;
const LOCK = "M4 7.5h8v5.5h-8z";
const LOOP = "M13 8a5 5 0 1 1-1.6-3.7L13 6M13 2.5V6H9.5";
// By the names of Font Awesome, which ipywidgets uses. Each path fits in a square of 16.
const PATHS = {
  ban: "M8 2.5a5.5 5.5 0 1 0 .01 0M4.2 4.2l7.6 7.6",
  check: "M3 8.5l3.5 3.5L13 4.5",
  "chevron-left": "M10 3L5 8l5 5",
  "chevron-right": "M6 3l5 5-5 5",
  "clock-o": "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3.2l2.3 1.5",
  columns: "M2.5 3h11v10h-11zM8 3v10",
  copy: "M6 5.5h7v8H6zM10 5.5v-3H3v8h3",
  download: "M8 2.5v7M4.8 6.5L8 9.7l3.2-3.2M3 13h10",
  envelope: "M2.5 4h11v8.5h-11zM2.5 4.5L8 9l5.5-4.5",
  eye: "M1.5 8C4 3.5 12 3.5 14.5 8 12 12.5 4 12.5 1.5 8zM8 6.3a1.7 1.7 0 1 0 .01 0",
  filter: "M2.5 3h11L9.3 8.2v4.6L6.7 11.3V8.2z",
  forward: "M3 3.5L8 8l-5 4.5zM8 3.5L13 8l-5 4.5z",
  list: "M6 4h7.5M6 8h7.5M6 12h7.5M2.5 4h1M2.5 8h1M2.5 12h1",
  lock: `${LOCK}M5.5 7.5V5.5a2.5 2.5 0 0 1 5 0v2`,
  pause: "M5.5 3.5v9M10.5 3.5v9",
  pencil: "M3 13l.700-3L10.5 3.2l2.3 2.3L6 12.3z",
  play: "M4.5 3l8 5-8 5z",
  plus: "M8 3v10M3 8h10",
  refresh: LOOP,
  repeat: "M3 8V6.5A2 2 0 0 1 5 4.5h8M10.5 2L13 4.5 10.5 7M13 8v1.5a2 2 0 0 1-2 2H3M5.5 9L3 11.5 5.5 14",
  search: "M7 2.5a4.5 4.5 0 1 0 .01 0M10.3 10.3L14 14",
  stop: "M4 4h8v8H4z",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.3 4.5l.700 9h6l.700-9",
  undo: "M3 8a5 5 0 1 0 1.6-3.7L3 6M3 2.5V6h3.5",
  unlock: `${LOCK}M5.5 7.5V5.5a2.5 2.5 0 0 1 4.8-1`,
};

/** The icon with a name, as lines in the colour of the text; null where there is none. */
export function drawnIcon(name) {
  if (!Object.hasOwn(PATHS, name)) return null;
  const properties = { viewBox: `0 0 ${SIZE} ${SIZE}`, width: SIZE, height: SIZE, class: "sbn-icon", "aria-hidden": "true" };
  return svg("svg", properties, svg("path", { d: PATHS[name] }));
}
