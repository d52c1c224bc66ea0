"""`python -m tfctl_runtime`: the command for ps and worker tasks when the script is written only for the chief."""

import sys

from tfctl_runtime import _task
from tfctl_runtime._serve import serve_forever_if_needed

try:
    serve_forever_if_needed()
    task = _task.read()
except ValueError as error:
    sys.exit(str(error))
sys.exit(f"python -m tfctl_runtime: {task} of {task.strategy} does not serve others: give it its own program")
