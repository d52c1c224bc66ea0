"""Regular expressions that users write: in job files, in host patterns and on the command line."""

from __future__ import annotations

import re


def compiled(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raise ValueError with the reason if Python cannot."""
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("its parentheses are nested too deeply") from None
