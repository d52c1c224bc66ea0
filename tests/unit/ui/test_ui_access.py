"""Who may read the page. Nothing but these checks is between other pages of the browser and the output of jobs."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tfctl.ui.access import HEADERS, Access, Keys

HOST = "http://127.0.0.1:8470"
SECRET = "what a task has printed"
#: With one, every path is refused unless the request proves that it comes from who has the URL.
PATHS = ("/", "/cluster", "/logs/digits", "/static/page.js", "/stream/logs/digits", "/nothing", "//evil.example", "/..")


async def secret(_: Request) -> Response:
    return PlainTextResponse(SECRET)


@pytest.fixture
def keys() -> Keys:
    return Keys()


class Tab:
    """A tab of a browser, which may have cookies."""

    def __init__(self, app: ASGIApp, cookies: dict[str, str]) -> None:
        self._app, self._cookies = app, httpx.Cookies()
        for name, value in cookies.items():
            self._cookies.set(name, value)

    def request(
        self, method: str, path: str, params: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=HOST, cookies=self._cookies) as client:
                answer = await client.request(method, HOST + path, params=params, headers=headers)
                self._cookies.update(client.cookies)
                return answer

        return asyncio.run(ask())

    def get(
        self, path: str, params: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return self.request("GET", path, params, headers)


def tab(keys: Keys, cookie: str | None = None) -> Tab:
    methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
    app = Starlette(routes=[Route("/{path:path}", secret, methods=methods)])
    return Tab(Access(app, keys, "tfctl-8470"), {} if cookie is None else {"tfctl-8470": cookie})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_every_path_is_forbidden_without_token_or_cookie(keys: Keys, path: str, method: str) -> None:
    answer = tab(keys).request(method, path)
    assert (answer.status_code, SECRET in answer.text) == (403, False)


@pytest.mark.parametrize("token", ["", "x", "ä", "%00", "None", "a" * 5000])
def test_a_wrong_token_is_forbidden_even_with_the_cookie(keys: Keys, token: str) -> None:
    assert tab(keys, cookie=keys.token).get("/", params={"token": token}).status_code == 403
    assert tab(keys, cookie=token.encode("ascii", "ignore").decode()).get("/").status_code == 403


@pytest.mark.parametrize(
    "name",
    ["evil.example", "127.0.0.1.evil.example:8470", "evil.example:127.0.0.1", "127.0.0.1@evil.example", "0.0.0.0:8470",
     "localhost.:8470", "", "127.0.0.1:8470:1", "[::1]:8470", "127.0.0.1 evil"],
)  # fmt: skip
def test_a_foreign_host_is_refused_even_with_the_cookie(keys: Keys, name: str) -> None:
    """A page whose name a DNS server makes mean this machine sends its own name."""
    answer = tab(keys, cookie=keys.token).get("/", headers={"Host": name})
    assert (answer.status_code, SECRET in answer.text) == (400, False)
    assert tab(keys).get("/", params={"token": keys.token}, headers={"Host": name}).status_code == 400


@pytest.mark.parametrize("name", ["127.0.0.1:8470", "localhost:9000", "127.0.0.1"])
def test_the_machine_itself_and_the_end_of_a_tunnel_are_ours(keys: Keys, name: str) -> None:
    assert tab(keys, cookie=keys.token).get("/", headers={"Host": name}).text == SECRET


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(keys: Keys) -> None:
    client = tab(keys)
    answer = client.get("/logs/digits", params={"task": "worker/1", "token": keys.token})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/logs/digits?task=worker%2F1")
    [cookie] = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert (cookie.key, cookie["httponly"], cookie["samesite"], cookie["domain"]) == ("tfctl-8470", True, "strict", "")
    assert client.get("/logs/digits").text == SECRET


def test_the_redirect_stays_on_this_machine(keys: Keys) -> None:
    answer = tab(keys).get("//evil.example/", params={"token": keys.token})
    assert answer.headers["Location"] == "/evil.example/"


def test_a_token_for_the_command_line_of_a_browser_is_valid_once(keys: Keys) -> None:
    once = keys.once()
    assert once != keys.token
    assert tab(keys, cookie=once).get("/").status_code == 403, "it is no cookie"
    assert tab(keys).get("/", params={"token": once}).status_code == 303
    assert tab(keys).get("/", params={"token": once}).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_allowed(keys: Keys, method: str) -> None:
    answer = tab(keys, cookie=keys.token).request(method, "/cluster")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_every_answer_has_the_headers_that_protect_the_page(keys: Keys) -> None:
    answers = [
        tab(keys).get("/"),
        tab(keys).get("/", headers={"Host": "evil.example"}),
        tab(keys).get("/", params={"token": keys.token}),
        tab(keys, cookie=keys.token).get("/"),
        tab(keys, cookie=keys.token).request("POST", "/"),
    ]
    assert [answer.status_code for answer in answers] == [403, 400, 303, 200, 405]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy


def test_the_cookie_of_another_page_of_this_machine_is_not_ours(keys: Keys) -> None:
    app = Access(Starlette(), keys, "tfctl-8470")
    assert Tab(app, {"tfctl-8471": keys.token, "x": keys.token}).get("/").status_code == 403
