"""The main job from end to end on real input, offline: ``sbnotebook demo``."""
