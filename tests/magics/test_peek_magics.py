from __future__ import annotations

from pathlib import Path

from sbnotebook import read_messages
from sbnotebook.model import Message
from tests.magics.conftest import Kernel, Shell


def send(shell: Shell, queue: str, *texts: str) -> None:
    shell.run(f"namespace.create_queue('{queue}')")
    shell.variables["texts"] = list(texts)
    assert shell.run(f"%sb_send {queue} texts").value.ok


def test_assignment_and_into_bind_the_same(shell: Shell) -> None:
    send(shell, "bound", "a")
    assert shell.run("x = %sb_peek bound").value is None
    assert shell.run("%sb_peek bound --into y").value is None
    assert list(shell.variables["x"]) == list(shell.variables["y"])


def test_more_messages_are_announced_and_can_be_had(shell: Shell) -> None:
    send(shell, "long", *"abcde")
    first = shell.run("%sb_peek long -n 2")
    assert first.out.startswith(
        "About 3 more messages follow: -n all looks at every one, --from 3 continues, and %sb_browse long pages "
        "through them.\n"
    )
    assert [m.sequence_number for m in first.value] == [1, 2]
    assert [m.sequence_number for m in shell.run("%sb_peek long -n 2 --from 3").value] == [3, 4]
    rest = shell.run("%sb_peek long -n all --from 2")
    assert len(rest.value) == 4
    assert "More messages follow" not in rest.out
    exactly = shell.run("%sb_peek long -n 5")
    assert "More messages follow" not in exactly.out


def test_peek_shows_a_page_and_the_number_of_others(shell: Shell) -> None:
    send(shell, "many", *(f"text {number}" for number in range(1_200)))
    ran = shell.run("%sb_peek many")
    assert "--from 1001 continues" in ran.out
    assert "many: 1,000 messages, the first 50 shown" in ran.value._repr_html_()
    assert ran.value._repr_html_().count("<tr>") == 51
    assert len(shell.run("%sb_peek many -n all").value) == 1_200


def test_peek_and_groups_decode_bodies(shell: Shell) -> None:
    send(shell, "lines", "UA|DL", "AA")
    shell.run("import sbnotebook; _ = sbnotebook.decoder('lines', lambda body: body.decode().split('|'))")
    found = shell.run("""%sb_peek lines --decode lines --where "body_json->>'$[1]' = 'DL'" """).value
    assert found.to_arrow().column("body_text").to_pylist() == ['["UA","DL"]']
    (group,) = shell.run("%sb_groups lines --decode lines --by schema").value
    assert (group.count, group.schema) == (2, "as usual")
    assert "There is no decoder 'linse': did you mean lines?" in shell.run("%sb_peek lines --decode linse").err


def test_kernel_shows_an_escaped_table_and_text(kernel: Kernel, shell: Shell) -> None:
    send(shell, "hostile", "<script>alert(1)</script>", "\x1b[31mred")
    kernel.run("%sb_connect " + shell.variables["connection_string"])
    ran = kernel.run("%sb_peek hostile")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in ran.html.replace("<wbr>", "")
    assert "<script" not in ran.html
    assert "\x1b" not in ran.html + ran.text


def test_groups_show_a_query_for_their_telemetry(shell: Shell) -> None:
    shell.run("namespace.create_queue('traced')")
    trace = "0af7651916cd43dd8448eb211c80319c"
    properties = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    shell.variables["letter"] = Message(body=b"a", application_properties=properties)
    assert shell.run("%sb_send traced letter").value.ok
    shown = shell.run("%sb_groups traced --kql")
    assert shown.value is None
    assert f'dynamic(["{trace}"])' in shown.out


# ----------------------------------------------------------------


def test_export_writes_the_messages_that_match(shell: Shell, tmp_path: Path) -> None:
    shell.run("%sb_create queue to-files\nrows = [{'subject': s, 'body': s} for s in 'abab']\n%sb_send to-files rows")
    file = tmp_path / "b.parquet"
    ran = shell.run(f"""%sb_peek to-files --to {file} --where "subject = 'b'" -n 1""")
    assert ran.out == f"Wrote 1 messages of to-files to {file}.\n"
    assert [message.body for message in read_messages(file)] == [b"b"]
    assert "exists" in shell.error(f"%sb_peek to-files --to {file}")
    assert shell.run(f"%sb_peek to-files --to {file} --overwrite --into path\npath").value == file
    assert len(read_messages(file)) == 4


def test_sessions_are_listed(shell: Shell) -> None:
    shell.run("%sb_create queue with-sessions --requires-session")
    shell.run("rows = [{'session_id': s, 'body': s} for s in 'xyx']\n%sb_send with-sessions rows")
    assert shell.run("%sb_entities with-sessions --sessions").value == ["x", "y"]
    assert len(shell.run("%sb_peek with-sessions --session x").value) == 2


def test_peek_takes_a_range_and_one_number(shell: Shell) -> None:
    shell.run("%sb_create queue in-ranges\nrows = list('abcdef')\n%sb_send in-ranges rows")
    assert [m.body for m in shell.run("%sb_peek in-ranges --from 2 --to-sequence-number 3").value] == [b"b", b"c"]
    assert [m.body for m in shell.run("%sb_peek in-ranges --sequence-number 4").value] == [b"d"]
    assert len(shell.run("%sb_resubmit in-ranges --from 5 --dry-run").value) == 2
    assert len(shell.run("%sb_purge in-ranges --to-sequence-number 3 --dry-run").value) == 3
