from __future__ import annotations

import json

from sbnotebook.client.assistant import RemoteAssistant
from sbnotebook.model import Message
from tests.magics.conftest import Shell


def test_a_notebook_shares_and_a_person_confirms(shell: Shell) -> None:
    shell.run("namespace.create_queue('asked')")
    shell.variables["orders"] = [Message(body=b"a"), Message(body=b"b")]
    assert shell.run("%sb_send asked orders").value.ok
    assert "run %sb_assistant" in shell.error("%sb_confirm")
    try:
        assert '"args": ["mcp", "--notebook"]' in shell.run("%sb_assistant --may-plan").out
        assert "No plan waits." in shell.run("%sb_confirm").out
        remote = RemoteAssistant()
        text, _ = remote.call("plan", {"entity": "asked", "action": "dead_letter", "where": "true", "reason": "Bad"})
        digest = json.loads(text)["digest"]
        assert remote.call("apply", {"digest": digest})[1]
        assert f"%sb_confirm {digest}" in shell.run("%sb_confirm").out
        assert "Confirmed: Dead-letter 2 messages of asked?" in shell.run(f"%sb_confirm {digest}").out
        assert not remote.call("apply", {"digest": digest})[1]
        assert "is not here" in shell.error("%sb_confirm 0123456789abcdef")
        calls = shell.run("%sb_assistant --calls").value
        assert calls["tool"].tolist() == ["apply", "apply", "plan"]
    finally:
        shell.run("%sb_assistant --stop")
    assert [letter.dead_letter_reason for letter in shell.run("%sb_peek asked/$dlq").value] == ["Bad", "Bad"]
    assert "run %sb_assistant" in shell.error("%sb_confirm")
