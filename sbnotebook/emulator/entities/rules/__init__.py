"""Rules of subscriptions: filters that take messages, and actions that change the copies."""
