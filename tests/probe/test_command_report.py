from __future__ import annotations

from datetime import UTC, datetime

from sbnotebook.probe.command import markdown
from sbnotebook.probe.probe import Finding, ProbeVerdict, without_names
from sbnotebook.probe.run import PROBES

WHEN = datetime(2026, 11, 22, 10, tzinfo=UTC)
HOST = "shop.servicebus.windows.net"


def test_a_report_has_a_row_for_each_probe() -> None:
    findings = [Finding(probe, ProbeVerdict.EXPECTED, "it was so") for probe in PROBES]
    text = markdown(findings, host=HOST, tier="Standard", when=WHEN)
    assert text.count("| as expected |") == len(PROBES)
    assert f"- {len(PROBES)} as expected, 0 different, 0 could not tell" in text
    assert "- NAMESPACE.servicebus.windows.net, tier Standard, on 2026-11-22" in text
    assert "shop" not in text


def test_what_was_seen_stays_in_its_cell() -> None:
    finding = Finding(PROBES[0], ProbeVerdict.UNKNOWN, "a | b\n# title <img src=x> [link](http://x) `code`")
    row = markdown([finding], host=HOST, tier="Standard", when=WHEN).splitlines()[-1]
    assert row.endswith(r"| could not tell | a \| b # title &lt;img src=x&gt; \[link\](http://x) \`code\` |")


def test_names_and_secrets_are_left_out() -> None:
    said = "The entity 'sb://Shop.servicebus.windows.net/q' at 10.1.2.3:5671, SharedAccessKey=abc, SystemTracker:shop:q"
    assert without_names(said, f"{HOST}:5671") == (
        "The entity 'sb://NAMESPACE.servicebus.windows.net/q' at ADDRESS, SharedAccessKey=*** SystemTracker:NAMESPACE:q"
    )
    assert without_names("workshop shop-2", HOST) == "workshop shop-2"
