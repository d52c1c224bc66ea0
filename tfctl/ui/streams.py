"""Server-sent events: what a thread produces, as the body of an answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse

#: The least time (s) between two pieces of an answer: what is produced meanwhile is sent together.
_PACE_S = 0.05
#: How often (s) something is sent at least, so that a browser that is gone is noticed.
_BEAT_S = 10.0
#: Bytes that may wait to be sent.
_MOST = 1 << 20


class Gone(Exception):
    """The browser has closed the stream."""


class Pipe:
    """Passes on what a thread produces. ``over`` is set once nobody reads it any more."""

    def __init__(self) -> None:
        self.over = threading.Event()
        #: Called once nobody reads it any more.
        self.at_close: Callable[[], object] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._emptied = threading.Condition()
        self._waiting: list[bytes] = []
        self._size = 0
        self._ended = False

    def send(self, event: str, value: object) -> None:
        """Send an event, whose data is JSON. Raise Gone if nobody reads it."""
        self.write(f"event: {event}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode())

    def write(self, data: bytes) -> None:
        """Send bytes, after waiting for the reader if many have not been sent. Raise Gone if nobody reads them."""
        with self._emptied:
            self._emptied.wait_for(lambda: self._size < _MOST or self.over.is_set())
            if self.over.is_set():
                raise Gone
            self._waiting.append(data)
            self._size += len(data)
        self._wake()

    def end(self) -> None:
        """Let the answer end once everything is sent."""
        self._ended = True
        self._wake()

    async def take(self) -> bytes | None:
        """Return what waits, b"" if nothing comes for a while, or None at the end."""
        try:
            await asyncio.wait_for(self._filled.wait(), _BEAT_S)
        except TimeoutError:
            return b""
        with self._emptied:
            ended = self._ended
            self._filled.clear()
            data, self._waiting, self._size = b"".join(self._waiting), [], 0
            self._emptied.notify_all()
        if ended:
            self._filled.set()
        return data or (None if ended else b"")

    def close(self) -> None:
        with self._emptied:
            self.over.set()
            self._emptied.notify_all()
        self.at_close()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._filled.set)


def stream(
    produce: Callable[[Pipe], None], media_type: str = "text/event-stream", headers: dict[str, str] | None = None
) -> StreamingResponse:
    """Return an answer whose body ``produce`` writes, in a thread of its own. It may raise Gone."""
    beat = b": beat\n\n" if media_type == "text/event-stream" else b""
    return StreamingResponse(_body(produce, beat), media_type=media_type, headers=headers)


async def _body(produce: Callable[[Pipe], None], beat: bytes) -> AsyncIterator[bytes]:
    pipe = Pipe()

    def run() -> None:
        try:
            produce(pipe)
        except Gone:
            pass
        finally:
            pipe.end()

    threading.Thread(target=run, daemon=True).start()
    try:
        while (data := await pipe.take()) is not None:
            if data or beat:
                yield data or beat
            await asyncio.sleep(_PACE_S)
    finally:
        pipe.close()
