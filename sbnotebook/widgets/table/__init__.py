"""The message table and what stands around it, and its stand-in of plain widgets."""
