"""Load on one server, closed or open loop, and the statistics of what comes back."""
