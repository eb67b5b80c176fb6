"""``python -m sbnotebook.emulator``."""

from sbnotebook.emulator.command import main

main()
