"""Messages held under locks: received, renewed, settled and released."""
