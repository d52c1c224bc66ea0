"""Everything that touches another machine."""
