"""The private side of azure-servicebus 7.15."""
