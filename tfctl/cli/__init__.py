"""The command line: one file per command. Only this package uses typer and rich."""
