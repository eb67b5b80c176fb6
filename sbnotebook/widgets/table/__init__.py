"""The message table with its surroundings, and its replacement of plain widgets."""
