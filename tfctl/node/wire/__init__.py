"""The protocol between client and node: one JSON object per line on the stdin and stdout of `tfctl-node`.

The client's first line is a request: ``{"protocol": 2, "verb": VERB}`` with the fields of that verb's request. Every
other line is a message: an object with one key, its kind, whose value has the fields of the kind's class. This package
has a class for each, and the only functions that encode and decode them. A node answers a request that it cannot serve
with ``error``.

start    client  StartRequest
         node    hello                                                                            no lock is held
         client  plan, then, only if hello said code false, code and the announced number of raw bytes (tar.gz)
                 or rerun: the node makes the plan from the restart files of the attempt that the request named
         node    reserved or refused
         client  share   node  share        the output directory: write, find or remove a mark that other hosts look for
         client  go      node  beat every 5 s, then started, or undone: the node has already undone what it started
         client  keep    node  kept, and ends
         client  beat at any time, without an answer. After 30 s of silence, or if stdin ends before keep, the node
                 undoes the start and ends.
show     client  ShowRequest     node  show; with follow, one more at every change and beat every 5 s until stdin ends.
                                       With brief, a long record is left out and named by its digest
stop     client  StopRequest     node  with hold, marked, and waits for go; then beat every 5 s, then stopped
restart  client  RestartRequest  node  beat every 5 s, then restarted; error with exit 7 if a unit is gone
events   client  EventsRequest   node  events
nodes    client  NodesRequest    node  node
notify   guard   NotifyRequest   node  beat every 5 s, then notified
queue    client  QueueRequest    node  queued, one more at every change and beat every 5 s until stdin ends
prune    client  PruneRequest    node  stored; with attempts, beat every 5 s, then pruned
leave    guard   LeaveRequest    node  left
pull     client  PullRequest     node  files, then listings; for each file that the client asks for with
                                       fetch: pieces, each followed by its raw bytes, then ended
exec     client  ExecRequest     node  beat every 5 s and pieces (1: stdout, 2: stderr), each followed by its raw bytes,
                                       then exited; the end of stdin, or 30 s of silence, ends the command
logs     client  LogsRequest     node  beat every 5 s, then logs, then journalctl's own JSON lines;
                                       with grep or states, among them beats and, as the last line, perhaps an error.
                                       With follow and states, among them also show: one before the first line, if it
                                       can be made soon, and one more at every change; and beat after 5 s of silence

Times are in epoch seconds. A task's name is [ROLE, INDEX].

    requests.py            a class per verb
    client_messages.py     a class per message of the client
    node_messages.py       a class per message of the node
    record.py, status.py   what these consist of
    journal.py             the lines of the journal
    lines.py, codec.py     encode and decode

Other packages use the names of all of them as `wire.NAME`.
"""

from .client_messages import *
from .codec import Malformed as Malformed
from .codec import by_name as by_name
from .codec import decode as decode
from .codec import encode as encode
from .codec import parse as parse
from .journal import *
from .lines import *
from .node_messages import *
from .record import *
from .requests import *
from .status import *

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
#: A run that fails within this time (s) of its beginning fails at once.
AT_ONCE_S = 10.0
#: A longer record (bytes) is left out where the client allows it. To ask for a shorter one would take longer than to
#: read it from every host.
LONG_RECORD = 4096
#: The room (bytes) that a start needs in the directory of the jobs, beside the code.
SPARE = 200 * 1000**2
#: The remedy where it is missing.
MAKE_ROOM = "delete jobs that are over: tfctl prune --older-than 14d; or delete what tasks have written there"
