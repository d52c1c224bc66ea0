"""Programs on PATH that a thread of this process answers: to start Python for each call takes 40 ms of CPU time.

Each is a few lines of bash: it sends its name and arguments over loopback, prints the answer and exits as it says.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: Returns the exit code and the output of a program with these arguments.
Answer = Callable[[str, list[str]], tuple[int, str]]

_PROGRAM = """#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\0' $# "${{0##*/}}" "$@" >&3
IFS= read -r -d '' code <&3
IFS= read -r -d '' said <&3
printf %s "$said"
exit "$code"
"""


@contextlib.contextmanager
def serving(folder: Path, names: Iterable[str], answer: Answer) -> Iterator[None]:
    """Create a directory with the programs, for PATH, and serve them during the block, one call at a time."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name in names:
            (folder / name).write_text(_PROGRAM.format(port=listener.getsockname()[1]))
            (folder / name).chmod(0o755)
        thread = threading.Thread(target=_serve, args=(listener, answer), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept
            thread.join(10)


def _serve(listener: socket.socket, answer: Answer) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, client.makefile("rb") as file:
            data = b""
            while data.count(b"\0") < 2 or data.count(b"\0") < 2 + int(data.partition(b"\0")[0]):
                if not (more := file.read1()):
                    break  # it was killed
                data += more
            else:
                _, name, *words, _ = data.decode(errors="surrogateescape").split("\0")
                try:
                    code, said = answer(name, words)
                except Exception:
                    code, said = 70, traceback.format_exc()
                with contextlib.suppress(OSError):
                    client.sendall(f"{code}\0{said}\0".encode(errors="surrogateescape"))
