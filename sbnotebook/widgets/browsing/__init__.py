"""The browser of a namespace and its parts."""
