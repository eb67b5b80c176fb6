"""The entities of a namespace and what they do with messages.

No sockets, no frames, no clock: the moment is passed in, as milliseconds since 1970-01-01 UTC.
"""
