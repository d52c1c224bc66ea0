"""Find the tests that a change can affect (`scripts/test --changed`), and the digest of what a check depends on.

`repository.py` lists the files and what has changed in them. `imports.py` reads which files a Python file imports or
names, and `rules.py` says what neither shows. `graph.py` puts both together, `select.py` chooses, and `__main__.py` is
the command line.
"""
