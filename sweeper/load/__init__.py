"""Closed-loop load on one server, and the statistics of what comes back."""
