"""The command line, for scripts/test.

python -m scripts.affected changed [BASE]        print the tests, and ansible-lint, that can be affected by what the
                                                 working tree changes since it left BASE, one per line; on stderr, say
                                                 what is left out. Default: origin/main, or main without that
python -m scripts.affected digest CHECK WORD...  print a digest of all files on which a check depends, and of the words
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.affected.graph import Graph
from scripts.affected.repository import GitError, Repository
from scripts.affected.rules import NAMES
from scripts.affected.selection import report, select


def main(words: list[str]) -> int:
    repository = Repository(Path(__file__).resolve().parents[2])
    match words:
        case ["changed", *base] if len(base) <= 1:
            change = repository.change(*base)
            found = select(Graph(repository, change.files), change)
            print("".join(f"   {line}\n" for line in report(change, found)), end="", file=sys.stderr)
            print("".join(f"{name}\n" for name in found.chosen), end="")
        case ["digest", check, *more]:
            inputs = Graph(repository).inputs(check)
            names = repository.files if NAMES in inputs else ()
            print(repository.digest(inputs, check, *more, *sorted(names)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GitError as error:
        sys.exit(f"{error}")
