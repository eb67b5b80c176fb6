"""The triage as an app, served by Voilà."""
