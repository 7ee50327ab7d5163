"""From a YAML file to a study: reading, expanding, and every error with its line."""
