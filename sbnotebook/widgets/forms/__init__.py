"""Forms that ask for the details of a plan."""
