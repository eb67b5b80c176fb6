// The clipboard of the browser, which a page may use after a click of the user.

import { focusedElement } from "./focused.js";

/**
 * Copy a text; gives whether the browser allowed it. Pages that did not come over HTTPS, or from this machine, have no
 * clipboard of their own, and copy a selection instead.
 */
export async function copyText(text, near) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text, near);
  }
}

function copySelection(text, near) {
  const focused = focusedElement();
  const area = document.createElement("textarea");
  area.setAttribute("aria-hidden", "true");
  area.style.cssText = "position: fixed; opacity: 0; pointer-events: none";
  area.value = text;
  near.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
