from __future__ import annotations

import json
from pathlib import Path

from sbnotebook.client import NamespaceCopy
from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Shell


def fill(shell: Shell, queue: str) -> None:
    shell.run(f"namespace.create_queue('{queue}')")
    shell.variables["rows"] = [
        {"subject": subject, "body": f'{{"email": "{name}@example.com"}}'}
        for subject, name in (("a", "ada"), ("b", "bob"), ("a", "ada"))
    ]
    assert shell.run(f"%sb_send {queue} rows").value.settled == 3


def test_sample_copies_chosen_messages_and_masks_them(shell: Shell, emulator: RunningEmulator) -> None:
    fill(shell, "sampled")
    ran = shell.run("""%sb_sample sampled --where "subject = 'a'" --mask $.email --into copy""")
    assert "Work in it with copy.entity(…), or %sb_connect {copy.connection_string}; copy.close() ends it." in ran.out
    copy = shell.variables["copy"]
    assert isinstance(copy, NamespaceCopy)
    emails = [json.loads(message.body)["email"] for message in copy.entity("sampled").peek()]
    assert emails[0] == emails[1]
    assert emails[0].startswith("masked-")
    assert shell.run("copy.entity('sampled').purge().apply()").value.settled == 2
    assert emulator.counts("sampled").active == 3
    copy.close()


def test_sample_can_be_used_by_the_other_magics(shell: Shell, emulator: RunningEmulator) -> None:
    fill(shell, "connected")
    shell.run("%sb_sample connected -n 2 --into copy")
    assert shell.run("%sb_connect {copy.connection_string}").err == ""
    assert len(shell.run("%sb_peek connected").value) == 2
    shell.run(f"%sb_connect {emulator.connection_string} --into namespace")
    shell.variables["copy"].close()
    assert len(shell.run("%sb_peek connected").value) == 3


def test_sample_is_written_to_a_file_and_read(shell: Shell, tmp_path: Path) -> None:
    fill(shell, "filed")
    path = tmp_path / "filed.sbcopy"
    ran = shell.run(f"%sb_sample filed --messages 1,3 --mask subject --mask $.email --to {path}")
    said = f"Wrote {path}: 2 messages of filed. Masked: subject in 2, $.email in 2; 0 bodies as a whole."
    assert ran.out.strip() == said
    assert ran.value is None
    assert "exists" in shell.error(f"%sb_sample filed --to {path}")
    assert "3 messages of filed" in shell.run(f"%sb_sample filed --to {path} --overwrite").out
    with shell.run(f"%sb_sample --from {path}").value as copy:
        assert [message.subject for message in copy.entity("filed").peek()] == ["a", "b", "a"]
    shell.run(f"%sb_sample filed -n 1 --to {path} --overwrite --into kept")
    with shell.variables["kept"] as kept:
        assert len(kept.messages) == 1


def test_sample_takes_a_cause(shell: Shell) -> None:
    fill(shell, "caused")
    shell.run("%sb_lock caused -n 3\n%sb_dead_letter --reason Bad")
    shell.run("causes = %sb_groups caused/$dlq")
    with shell.run("%sb_sample caused/$dlq --cause {causes[0].fingerprint} -n 2").value as copy:
        assert len(copy.entity("caused/$dlq").peek()) == 2
