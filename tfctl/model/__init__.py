"""What is asked for, as frozen data and pure functions over it, read in the order of the data."""
