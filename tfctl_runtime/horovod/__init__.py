"""What Horovod's ranks run beneath: where they meet, and by which interface. Standard library alone; any Horovod."""
