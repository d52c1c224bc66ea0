"""Regular expressions that users write: in job files, in host patterns and on the command line."""

from __future__ import annotations

import re
import warnings


def compiled(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raise ValueError with the reason if Python cannot."""
    try:
        with warnings.catch_warnings():
            # Of what a later Python may read in another way, such as [[a].
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("its parentheses are nested too deeply") from None
