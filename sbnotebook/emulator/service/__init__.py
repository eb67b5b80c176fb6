"""The service that clients see: links on entities, request nodes, and administration over HTTP."""
