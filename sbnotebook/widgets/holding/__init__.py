"""The board of held messages and its parts."""
