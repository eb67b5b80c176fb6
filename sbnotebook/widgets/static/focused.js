/** The element that has the focus, also inside a shadow root: marimo draws each panel in one. */
export function focusedElement() {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at;
}
