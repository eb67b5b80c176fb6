"""For tests, ours and yours: Hypothesis strategies, and comparing messages with their types.

Nothing is imported here: :mod:`sbnotebook.testing.strategies` needs hypothesis, which sbnotebook does not install.
"""
