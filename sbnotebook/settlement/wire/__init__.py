"""Messages as AMQP bytes and back."""
