"""How a namespace is reached, and what it means when it cannot be."""
