"""The command that checks a namespace of your own."""
