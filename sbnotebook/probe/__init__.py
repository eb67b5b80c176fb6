"""Probes: what sbnotebook takes for granted of Service Bus, each checked against a live namespace."""
