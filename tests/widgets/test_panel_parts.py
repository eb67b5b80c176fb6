from __future__ import annotations

from sbnotebook.widgets.panel import button, panel_style, row, set_shown, text


def test_a_text_is_never_mathematics_and_has_its_kinds() -> None:
    label = text("orders/$dlq and $x$", "title", "problem")
    assert label.value == "orders/$dlq and $x$"
    classes = set(label.get_state()["_dom_classes"])
    assert classes == {"sbn-text", "mathjax_ignore", "tex2jax_ignore", "sbn-title", "sbn-problem"}


def test_each_kind_has_its_style() -> None:
    style = panel_style().value
    assert all(f"sbn-{kind}" in style for kind in ("text", "title", "strong", "quiet", "problem", "notice", "form"))


def test_a_button_does_what_it_says() -> None:
    clicks: list[str] = []
    made = button("Refresh", "Look again", lambda: clicks.append("one"), icon="refresh")
    made.click()
    made.click()
    assert (clicks, made.tooltip, made.layout.width) == (["one", "one"], "Look again", "auto")


def test_what_is_hidden_has_no_room() -> None:
    line = row(text("a"), text("b"))
    set_shown(line, shown=False)
    assert line.layout.display == "none"
    set_shown(line, shown=True)
    assert line.layout.display is None
