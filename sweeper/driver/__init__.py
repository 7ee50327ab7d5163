"""One driver per study: who holds it, and whether that process is surely gone."""
