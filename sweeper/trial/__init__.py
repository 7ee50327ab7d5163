"""What happens on a server's node: launch, warm up, measure, compare outputs, end."""
