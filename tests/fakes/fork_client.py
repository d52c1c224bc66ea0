"""Have the fork server run a program, and exit as it does: `fork_client.py ADDRESS PROGRAM ARGUMENT…`.

This imports only modules that are built into Python, because it takes the place of a program that starts slowly.
"""

import posix
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket

_address, *_words = sys.argv[1:]
_server = socket(AF_UNIX, SOCK_SEQPACKET)
_server.connect(f"\0{_address}")
_fields = [posix.getcwd(), str(len(_words)), *_words]
_environment = [name + b"=" + value for name, value in posix.environ.items()]
_request = b"\0".join([*(field.encode(errors="surrogateescape") for field in _fields), *_environment])
_streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
_server.sendmsg([_request], [(SOL_SOCKET, SCM_RIGHTS, _streams)])
for _number in range(3):  # the program alone decides when they are closed
    posix.close(_number)
_server.recv(64)
_status = int(_server.recv(64) or 1)
if _status < 0:
    posix.kill(posix.getpid(), -_status)
posix._exit(_status)
