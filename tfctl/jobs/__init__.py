"""The use cases: what the verbs of a job do."""
