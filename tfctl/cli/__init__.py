"""The command line: one file per verb. The only place that meets typer and rich."""
