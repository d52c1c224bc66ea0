"""`python -m tfctl_runtime`: the command of the tasks that compute or keep variables for others, where a script is
written for the chief alone."""

import sys

from tfctl_runtime import _task
from tfctl_runtime._serve import serve_forever_if_needed

try:
    serve_forever_if_needed()
    task = _task.read()
except ValueError as error:
    sys.exit(str(error))
sys.exit(f"python -m tfctl_runtime: {task} of {task.strategy} does not serve others: give it a program of its own")
