"""Messages as tables: pandas and Arrow frames, where, causes, masks, charts and exports."""
