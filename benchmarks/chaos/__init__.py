"""A study whose servers, actors, nodes and driver are killed all the time, and what must be true of it at its end."""
