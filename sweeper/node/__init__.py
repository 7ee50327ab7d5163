"""The machine that a server runs on: its processors, and what its processes share out among themselves."""
