"""A real cluster on one machine."""
