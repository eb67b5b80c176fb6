/**
 * Keep keys from JupyterLab's commands, such as D twice, which deletes the cell. JupyterLab looks at the element that has the
 * focus before it looks at those around it, so each of them says so.
 */
export function keepKeys(root) {
  const mark = (element) => (element.dataset.lmSuppressShortcuts = "true");
  mark(root);
  root.addEventListener("focusin", ({ target }) => mark(target));
}

/** The element that has the focus, also inside a shadow root: marimo draws each panel in one. */
export function focusedElement() {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at;
}
