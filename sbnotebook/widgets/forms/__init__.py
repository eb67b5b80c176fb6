"""What is asked before a plan is made."""
