"""What the broker's clients see: links on entities, the request nodes, and the administration over HTTP."""
