"""From a finished (or running) study to tables, files and deployment configs. One report object feeds all."""
