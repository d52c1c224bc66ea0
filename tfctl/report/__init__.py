"""Measure jobs: read the timings and the progress of tasks, compare runs, and run a job file with several settings."""
