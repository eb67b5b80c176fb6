"""Files of this user on this machine: the journal, the archive, deferrals, notes and seen messages."""
