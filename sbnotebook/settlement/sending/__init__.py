"""Messages sent with a limit on what is in flight, now or later."""
