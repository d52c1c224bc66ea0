"""A node part that lies about the files of a job: `fake_liar.py LISTING COMMAND…`.

It answers each `pull` with the files of the JSON file LISTING, and sends `evil` as the content of every one. For all
other verbs it runs the command, which is the node part.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


def pull(listed: list[Any]) -> None:
    say("files", {"attempt": 1, "tasks": []})
    say("listing", {"files": listed, "skipped": [], "last": True})
    for line in sys.stdin.buffer:
        for position, _ in json.loads(line).get("fetch", {"files": []})["files"]:
            say("piece", {"position": position, "size": 4}, "evil")
            say("ended", {"position": position})


def say(kind: str, value: Any, payload: str = "") -> None:
    print(json.dumps({kind: value}), payload, sep="\n", end="", flush=True)


def pass_on(request: bytes, command: list[str]) -> int:
    node = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert node.stdin

    def forward(sink: Any) -> None:
        with contextlib.suppress(OSError), sink:
            sink.write(request)
            sink.flush()
            while data := os.read(0, 65536):
                sink.write(data)
                sink.flush()

    threading.Thread(target=forward, args=(node.stdin,), daemon=True).start()
    return node.wait()


_file, *_command = sys.argv[1:]
# Unbuffered: what follows the request is left to `pass_on`.
_request = b""
while not _request.endswith(b"\n") and (_byte := os.read(0, 1)):
    _request += _byte
if json.loads(_request)["verb"] == "pull":
    pull(json.loads(Path(_file).read_text()))
    os._exit(0)
os._exit(pass_on(_request, _command))
