"""The use cases behind the job commands."""
