"""The triage of an entity and its parts."""
