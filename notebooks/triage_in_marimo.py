"""Triage a dead-letter queue in marimo: run `marimo edit triage_in_marimo.py`, or `marimo run` for the panel alone.

The app has its own emulator, in memory, which ends with the app. Needs the extras `widgets` and `emulator`, and marimo
0.25 or newer.
"""

import marimo

app = marimo.App(width="full")


@app.cell
def _():
    from contextlib import ExitStack

    import marimo as mo

    import sbnotebook as sb
    from sbnotebook.emulator import running

    return ExitStack, mo, running, sb


@app.cell
def _(mo):
    mo.md("""
    # Triage a dead-letter queue

    A consumer rejects most of its orders. Find the causes below, choose one, and open an action: sbnotebook shows the
    plan before it does anything. Each row shows its outcome, and you can undo it.
    """)


@app.cell
def _(ExitStack, running, sb):
    cleanup = ExitStack()
    emulator = cleanup.enter_context(running(queues=["orders"]))
    ns = sb.connect(emulator.connection_string)
    return (ns,)


@app.cell
def _(ns, sb):
    def ship(message):
        number = int(message.message_id)
        if number % 3 == 0:
            raise sb.RejectMessage("Unknown carrier", f"Order {number} names the carrier 'XY'")
        if number % 4 == 0:
            raise sb.RejectMessage("No address", f"Order {number} has no address")

    orders = ns.entity("orders")
    orders.send(sb.Message(body=f'{{"order": {number}}}', message_id=f"{number}") for number in range(300))
    shipped = orders.process(ship)
    return (shipped,)


@app.cell
def _(ns, sb, shipped):
    assert shipped is not None  # the panel comes after the messages
    triage = sb.Triage(ns, "orders/$dlq")
    triage
    return (triage,)


@app.cell
def _(mo):
    mo.md("""
    Use `mo.ui.anywidget(triage.view)` to put the panel beside other elements, such as in `mo.hstack`. `Browser`,
    `LockBoard` and `Monitor` work in the same way. *Download as HTML* keeps a record of the triage: the causes, and
    what you did.
    """)


if __name__ == "__main__":
    app.run()
