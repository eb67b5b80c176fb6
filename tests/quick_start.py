"""Spares each process of the tests what jsonschema imports and no test uses: 1.4 seconds of CPU time.

``-p tests.quick_start`` in pyproject.toml loads it before the plugins, of which nbmake imports jsonschema. It compiles
a grammar of the package rfc3987_syntax for its check of the format "iri"; without the package it does not.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]
