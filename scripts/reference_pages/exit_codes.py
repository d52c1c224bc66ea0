"""The page about exit codes, from tfctl.errors.Exit."""

from __future__ import annotations

from scripts.reference_pages.markdown import code, paragraphs, table
from tfctl.errors import PRECEDENCE, Exit


def page() -> str:
    rows = [[str(int(each)), code(each.name), each.meaning] for each in Exit]
    order = ", ".join(str(int(each)) for each in PRECEDENCE)
    return paragraphs(
        "# Exit codes",
        "All [commands](commands.md) use the same exit codes. Scripts can rely on them. With `-o json`, the exit "
        "code of a failed command is also in the [object](json.md#errors) that it prints.",
        table(["code", "name", "meaning"], rows),
        f"If hosts fail for different reasons, the first of these is the exit code of the command: {order}.",
        "`tfctl exec` exits with the code of the command that it has run, and `tfctl ssh` with that of `ssh`.",
    )
