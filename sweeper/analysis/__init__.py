"""Intervals, verdicts and where the time goes. Pure functions."""
