"""Who may read the page: whoever has its token. Every request passes this check before any route."""

from __future__ import annotations

import re
import secrets
import threading
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The names under which a browser on this machine, or at the other end of `ssh -L`, reaches the page. A page of another
#: name, which a DNS server may let point here, is refused.
_OURS = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?")
_FORBIDDEN = "403: open the URL that tfctl ui has printed. It contains the token.\n"
#: What every answer says. Without 'unsafe-inline', text of a host that got into the HTML could not run either.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Keys:
    """The token of a page, which is valid until the server ends, and tokens that are valid once.

    A token that is valid once is for the command line of a browser, which other users of this machine can see.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._once: set[str] = set()
        self._lock = threading.Lock()

    def once(self) -> str:
        """Return a new token that can be used once."""
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._once.add(made)
        return made

    def accepts(self, word: str) -> bool:
        """Return whether ``word`` is the token."""
        return secrets.compare_digest(word.encode(), self.token.encode())

    def take(self, word: str) -> bool:
        """Return whether ``word`` is the token or one that is valid once, which it is no more."""
        if self.accepts(word):
            return True
        with self._lock:
            found = [each for each in self._once if secrets.compare_digest(word.encode(), each.encode())]
            self._once.difference_update(found)
        return bool(found)


class Access:
    """Passes a request on to ``app`` if it is allowed, and adds `HEADERS` to every answer. ASGI middleware."""

    def __init__(self, app: ASGIApp, keys: Keys, cookie: str) -> None:
        self._app, self._keys, self._cookie = app, keys, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the routes, or None."""
        if not _OURS.fullmatch(request.headers.get("host", "")):
            return PlainTextResponse("400: open the page at 127.0.0.1 or localhost\n", 400)
        given = request.query_params.get("token")
        known = self._keys.accepts(request.cookies.get(self._cookie, "")) if given is None else self._keys.take(given)
        if not known:
            return PlainTextResponse(_FORBIDDEN, 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("405: this page can only be read\n", 405, {"Allow": "GET, HEAD"})
        return None if given is None else self._login(request)

    def _login(self, request: Request) -> Response:
        """Return a redirect to the same URL without the token, which becomes a cookie."""
        url = request.url.remove_query_params("token")
        path = "/" + url.path.lstrip("/")  # of //name, a browser would make a URL of another host
        answer = RedirectResponse(path + (f"?{url.query}" if url.query else ""), 303)
        answer.set_cookie(self._cookie, self._keys.token, path="/", httponly=True, samesite="strict")
        return answer
