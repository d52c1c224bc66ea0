"""Times, in seconds, and sizes on which both sides agree."""

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
#: The longest line of JSON that either side accepts, in bytes.
LINE_LIMIT = 16 * 2**20
#: A longer record (bytes) is left out where the client allows it. To ask for a shorter one would take longer than to
#: read it from every host.
LONG_RECORD = 4096
#: The room (bytes) that a start needs in the directory of the jobs, beside the code.
SPARE = 200 * 1000**2
#: The remedy where it is missing.
MAKE_ROOM = "delete jobs that are over: tfctl prune --older-than 14d; or delete what tasks have written there"
