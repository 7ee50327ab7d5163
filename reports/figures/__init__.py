"""The report's charts: each a plotly figure with the table of its numbers."""
