"""The four ways to show the blocks of a panel, one module each."""
