"""The notebook kit for Azure Service Bus."""

__version__ = "0.1.0"
