r"""Messages that attack programs that show, export or parse them: scripts, control characters, bombs, formulas.

Send them to a queue of an emulator and look at what your own code makes of them. The scripts set ``window.__hit`` where
a page runs them; nothing in here does any harm, except for time and memory where they are not limited.
"""

from __future__ import annotations

import gzip
from itertools import chain
from typing import Final

from sbnotebook.amqp import AmqpValue
from sbnotebook.model import Message

__all__ = ["hostile_bodies", "hostile_messages", "hostile_texts"]

_HIT: Final = "window.__hit=1"
_LONG_LINE: Final = 240_000
_DEEP: Final = 10_000
_DEEP_VALUE: Final = 30
_MANY: Final = 500
_LONGEST_ID: Final = 128
_ESC: Final = "\x1b"


def hostile_texts() -> dict[str, str]:
    """Return texts for subjects, ids, properties, reasons and descriptions, by the attack that they try.

    Returns:
        Names such as ``script`` and ``terminal link``, and texts of less than 1,000 characters. AMQP carries them all.

    Example:
        >>> hostile_texts()["formula"]
        "=cmd|' /C calc'!A0"
    """
    return _markup() | _typesetting() | _characters() | _languages()


def hostile_bodies() -> dict[str, bytes]:
    r"""Return bodies that are large, deep, broken, or grow where they are read, by the attack that they try.

    Returns:
        Bodies of at most 256 KB, which is what a standard namespace takes.

    Example:
        >>> hostile_bodies()["no UTF-8"][:4]
        b'\xc3(\xff\xfe'
    """
    long = _LONG_LINE
    return {
        "a long line": b"x" * long,
        "a long line of JSON": b'{"a":"' + b"x" * long + b'"}',
        "changing direction": ("\u05d0\u05d1 ab " * (long // 9)).encode(),
        "combining marks": ("a" + "\u0301" * 2_000).encode() * 50,
        "many lines": b"\n" * long,
        "deep JSON": b"[" * _DEEP + b"]" * _DEEP,
        "deep JSON that does not end": b'{"a":' * _DEEP,
        "wide JSON": b"{" + b",".join(b'"key%d":%d' % (n, n) for n in range(10_000)) + b"}",
        "numbers": b'{"a":1e999,"b":' + b"9" * 10_000 + b',"c":NaN,"d":-Infinity,"e":0.' + b"1" * 10_000 + b"}",
        "JSON with a prototype": b'{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"a":1,"a":2}',
        "script in JSON": f'{{"a":"</script><script>{_HIT}</script><img src=x onerror={_HIT}>"}}'.encode(),
        "billion laughs": _laughs(),
        "external entity": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        "deep XML": b"<a>" * _DEEP + b"</a>" * _DEEP,
        "script in XML": f"<svg onload='{_HIT}'><script>{_HIT}</script></svg>".encode(),
        "no UTF-8": b"\xc3\x28\xff\xfe\xf0\x28\x8c\xbc" * 100,
        "UTF-16": "\ufeff<script>".encode("utf-16-le"),
        "zeros": b"\0" * 10_000,
        "older .NET": b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x9a\xff\xff\xff\x7f",
        "packed": gzip.compress(b"\0" * 30_000_000),
        "all texts": "\n".join(hostile_texts().values()).encode(),
    }


def hostile_messages() -> list[Message]:
    """Return messages with the texts in all their fields, property names included, and those bodies.

    Example:
        >>> messages = hostile_messages()
        >>> {message.subject for message in messages} >= set(hostile_texts().values())
        True
    """
    nested: AmqpValue = "end"
    for _ in range(_DEEP_VALUE):
        nested = [nested, {"a": nested}] if isinstance(nested, str) else [nested]
    return [
        *(_with_text(text) for text in hostile_texts().values()),
        *(
            Message(
                body=body,
                subject=name,
                content_type="application/json" if "JSON" in name else None,
                content_encoding="gzip" if name == "packed" else None,
            )
            for name, body in hostile_bodies().items()
        ),
        Message(subject="many properties", application_properties={f"property {n}": n for n in range(_MANY)}),
        Message(
            subject="odd values",
            application_properties={
                "large": 2**63 - 1,
                "infinite": float("inf"),
                "no number": float("nan"),
                "bytes": bytes(range(256)),
                "ResubmitCount": 2**63 - 1,
                "DeadLetterReason": f"<img src=x onerror={_HIT}>",
            },
        ),
        Message.of_value(nested, subject="nested value"),
        Message.of_value({"__proto__": 1, f"<img src=x onerror={_HIT}>": f"<script>{_HIT}</script>"}, subject="map"),
    ]


def _with_text(text: str) -> Message:
    short = text[:_LONGEST_ID]
    return Message(
        body=text.encode(),
        message_id=short,
        correlation_id=short,
        subject=text,
        content_type=text,
        content_encoding=text,
        to=text,
        reply_to=text,
        reply_to_session_id=short,
        application_properties={text: text, f"{text} ": 1},
    )


def _markup() -> dict[str, str]:
    image = f"<img src=x onerror={_HIT}>"
    return {
        "script": f"<script>{_HIT}</script>",
        "image": image,
        "drawing": f"<svg/onload={_HIT}>",
        "attribute": f"\" onfocus=\"{_HIT}\" autofocus=\"' onmouseover='{_HIT}' x='",
        "end of an attribute": f"\"'>{image}",
        "end of a script": f"</script><script>{_HIT}</script>",
        "end of a style": f"</style></textarea></title></template></noscript>{image}",
        "end of a comment": f"--!>--> ]]>{image}",
        "frame": f'<iframe srcdoc="<script>parent.{_HIT}</script>"></iframe>',
        "frame with an address": f"<iframe src=javascript:parent.{_HIT}></iframe><object data=javascript:{_HIT}>",
        "details": f"<details open ontoggle={_HIT}><style>*{{display:none}}</style>",
        "escaped": f"&lt;img src=x onerror={_HIT}&gt;&#60;script&#62;",
        "twice escaped": f"&amp;lt;img src=x onerror={_HIT}&amp;gt;",
        "page": '</pre></div></table></body><meta http-equiv="refresh" content="0;url=//example.invalid">',
    }


def _typesetting() -> dict[str, str]:
    return {
        "link in Markdown": f'[x](javascript:{_HIT}) ![x](x"onerror="{_HIT}) <javascript:{_HIT}>',
        "formula with a link": rf"$\href{{javascript:{_HIT}}}{{x}}$ \(\href{{javascript:{_HIT}}}{{y}}\)",
        "formula that grows": r"$$\def\x#1{#1#1#1#1}\x{\x{\x{\x{\x{\x{\x{a}}}}}}}$$ $\def\y{\y\y}\y$",
        "formula with markup": rf"\[\require{{html}}\style{{position:fixed}}{{<img src=x onerror={_HIT}>}}\]",
        "markup of a terminal table": f"[bold red]x[/bold red][/] [link=javascript:{_HIT}]y[/link]",
    }


def _characters() -> dict[str, str]:
    return {
        "colours": f"{_ESC}[31mred{_ESC}[2J{_ESC}[H{_ESC}[?25l",
        "terminal link": f"{_ESC}]8;;javascript:{_HIT}{_ESC}\\x{_ESC}]8;;\x07",
        "title of a terminal": f"{_ESC}]0;title\x07{_ESC}P1$r0m{_ESC}\\{_ESC}c",
        "control characters of one byte": "\x9b31mred\x9d0;title\x9c\x84\x85",
        "written over": "harmless\rdelete all\b\b\b\b\x7f\x0b\x0c",
        "nothing": "before\0after",
        "turned around": "invoice\u202efdp.exe\u202c \u2066\u2067\u2069 \u200f\u061c",
        "not seen": "a\u200b\u200c\u200d\u2060\ufeffb\u00ad\u180e\u3164",
        "tags": "a" + "".join(chr(0xE0000 + ord(one)) for one in "hidden"),
        "no characters": "\ufffe\uffff\U0010ffff\ue000",
        "marks": "Z\u0351\u036b\u0343\u036a" * 30,
        "line ends": "one\ntwo\r\nthree\u2028four\u2029five\tsix",
        "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "look-alike": "\u043erders/$dlq",
        "spaces": " \u00a0\u2003 ",
    }


def _languages() -> dict[str, str]:
    formulas = ("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", "\n=1+1", "\uff1d1+1", '"=1+1')
    names = ("__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "length", "__class__")
    numbers = ("1e999", "9" * 400, "NaN", "-Infinity", "0x10", "1_000")
    texts = {
        "template": "{{7*7}} ${7*7} {7*7} {0.__class__} #{7*7} <%= 7*7 %> %s%n %(x)s",
        "shell": "$(touch x) `touch x` ; touch x | touch x && touch x",
        "SQL": "'; DROP TABLE messages; --",
        "SQL comment": '" OR 1=1 /* \\',
        "path": "../../../etc/passwd\\..\\..",
        "address": f"javascript:{_HIT}",
        "data address": f"data:text/html,<script>parent.{_HIT}</script>",
        "widget message": '{"method":"update","state":{"_esm":"x"},"kind":"ready","buffer_paths":[]}',
        "widget output": '{"application/vnd.jupyter.widget-view+json":{"model_id":"x"}}',
        "magic": "%%sb_purge orders",
        "secret": "env:HOME secret:scope/key Endpoint=sb://x/;SharedAccessKey=eA==",
        "formula": formulas[0],
    }
    odd = chain(formulas[1:], names, numbers)
    return texts | {f"odd {number}": text for number, text in enumerate(odd, 1)}


def _laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    return f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{entities}]><l>&l9;</l>'.encode()
