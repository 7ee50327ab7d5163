"""Exports of the best configuration, each with its evidence in comments."""
