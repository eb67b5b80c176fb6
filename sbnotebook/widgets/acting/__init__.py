"""How a panel acts: what can be done with a selection, the plan, carrying it out, and the report."""
