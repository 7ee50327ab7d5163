"""Draft checkpoints: what is inside them and how they run outside a server."""
