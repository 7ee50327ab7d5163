"""From prompt sources to the requests of every load."""
