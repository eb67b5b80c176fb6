"""Actions on messages: each says which messages it looks at, and the steps for a group of them."""
