"""The protocol between client and node: one JSON object per line on the stdin and stdout of `tfctl-node`.

The client's first line is a request: ``{"protocol": 2, "verb": VERB}`` with the fields of that verb's request. The
lines after a request are messages: an object with one key, its kind, whose value has the fields of the kind's class.
This package has a class for each, and the only functions that encode and decode them. The docstring of a request says
which messages follow it. A node answers a request that it cannot serve with ``error``.

The session ends with the answer to the request, unless this has ``"more": true``, which is for requests with one
message as their answer. The node then waits for another request. Older node parts do not know this field, and end.

Times are in epoch seconds. A task's name is [ROLE, INDEX].

    messages.py                       the requests and messages, verb by verb
    record.py, sample.py, status.py, trace.py   what these consist of
    journal.py                        the lines of the journal
    lines.py, codec.py                encode and decode

Other packages use the names of all of them as `wire.NAME`.
"""

from .codec import Figure as Figure
from .codec import Malformed as Malformed
from .codec import by_name as by_name
from .codec import decode as decode
from .codec import encode as encode
from .codec import parse as parse
from .journal import *
from .lines import *
from .messages import *
from .record import *
from .sample import *
from .status import *
from .trace import *

#: How often (s) a side that works gives a sign of life.
BEAT_S = 5.0
#: The longest silence (s) of either side, and of a host that answers at once.
SILENCE_S = 30.0
#: The longest silence (s) of a host whose states are followed: it beats.
FOLLOW_SILENCE_S = 15.0
#: The longest time (s) in which a host checks and reserves a plan, which includes unpacking the code.
RESERVE_S = 600.0
#: The longest time (s) until a host confirms keep.
KEEP_S = 15.0
#: An invocation that fails within this time (s) of its beginning fails at once.
AT_ONCE_S = 10.0
#: How often (s) the tasks of a job are sampled.
SAMPLE_S = 10.0
#: A longer record (bytes) is left out where the client allows it. To ask for a shorter one would take longer than to
#: read it from every host.
LONG_RECORD = 4096
#: The room (bytes) that a start needs in the directory of the jobs, beside the code.
SPARE = 200 * 1000**2
#: The remedy where it is missing.
MAKE_ROOM = "delete jobs that are over: tfctl prune --older-than 14d; or delete what tasks have written there"
