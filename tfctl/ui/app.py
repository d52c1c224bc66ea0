"""The routes of the page: its views, its files, and what these fetch. All of them only read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tfctl.errors import Exit, NotFound, TfctlError, UsageError
from tfctl.jobs import logs, why
from tfctl.node.names import JOB
from tfctl.ui import lines
from tfctl.ui.cluster import Cluster
from tfctl.ui.job import Jobs, WatchedJob, events_of, files_of, series_of
from tfctl.ui.objects import problems
from tfctl.ui.report import TensorBoards, figures_of
from tfctl.ui.streams import Pipe, stream
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.remote.fleet import Fleet

STATIC = Path(__file__).parent / "static"
#: The views of a job, each at /VIEW/JOB.
VIEWS = ("job", "logs", "curves", "more")
_STATUS = {Exit.NOT_FOUND: 404, Exit.USAGE: 400, Exit.UNREACHABLE: 502}
#: The most lines that are read before or after a place.
_MOST = 5000


def application(fleet: Fleet, job: str | None) -> Starlette:
    """Return the page about the hosts of ``fleet``. ``job``: the one that it shows first."""
    cluster, jobs, boards = Cluster(fleet), Jobs(fleet), TensorBoards()

    async def home(_: Request) -> Response:
        return RedirectResponse(f"/job/{job}" if job else "/cluster", 303)

    async def view(_: Request) -> Response:
        return FileResponse(STATIC / "page.html", media_type="text/html")

    async def cluster_stream(_: Request) -> Response:
        return stream(cluster.board.follow)

    routes = [
        Route("/", home),
        Route("/cluster", view),
        *(Route(f"/{name}/{{job}}", view) for name in VIEWS),
        *(Route(f"/{name}", view) for name in VIEWS),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/stream/cluster", cluster_stream),
        Route("/stream/job/{job}", _of_job(jobs, lambda found, _: stream(found.board.follow))),
        Route("/stream/logs/{job}", _of_job(jobs, _follow)),
        Route("/stream/around/{job}", _of_job(jobs, _around)),
        Route("/stream/search/{job}", _of_job(jobs, _search)),
        Route("/download/{job}", _of_job(jobs, _download)),
        Route("/api/events/{job}", _data(jobs, lambda found, _: events_of(*found.open()))),
        Route("/api/files/{job}", _data(jobs, lambda found, _: files_of(*found.open()))),
        Route("/api/series/{job}", _data(jobs, _series)),
        Route("/api/why/{job}", _data(jobs, lambda found, _: why.as_object(why.why(*found.open(), ())))),
        Route("/api/report/{job}", _data(jobs, lambda found, _: figures_of(*found.open()))),
        Route("/api/tensorboard/{job}", _data(jobs, lambda found, _: {"port": boards.port(*found.open())})),
    ]
    return Starlette(routes=routes, exception_handlers={TfctlError: _failed})


def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, TfctlError)
    return JSONResponse({"error": problems([error])[0]}, _STATUS.get(error.exit, 500))


def _of_job(jobs: Jobs, answer: Callable[[WatchedJob, Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return the function for a route with the name of a job."""

    async def respond(request: Request) -> Response:
        return answer(_job(jobs, request), request)

    return respond


def _data(jobs: Jobs, ask: Callable[[WatchedJob, Request], object]) -> Callable[[Request], Awaitable[Response]]:
    """Return the function for a route whose answer is JSON, for which hosts are asked."""

    async def respond(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(ask, _job(jobs, request), request))

    return respond


def _job(jobs: Jobs, request: Request) -> WatchedJob:
    name = request.path_params["job"]
    if not JOB.fullmatch(name):
        raise NotFound("there is no such job", "tfctl list shows the jobs")
    return jobs[name]


def _series(found: WatchedJob, request: Request) -> object:
    return series_of(*found.open(), _number(request, "since"))


def _follow(found: WatchedJob, request: Request) -> Response:
    tail = min(_MOST, int(_number(request, "tail") or 2000))
    return _lines(found, request, partial(lines.follow, tail=tail))


def _around(found: WatchedJob, request: Request) -> Response:
    time = _number(request, "time") or 0.0
    before, after = (min(_MOST, int(_number(request, name) or 0)) for name in ("before", "after"))
    return _lines(found, request, partial(lines.around, time=time, before=before, after=after))


def _search(found: WatchedJob, request: Request) -> Response:
    text = lines.FIRST_ERROR if "errors" in request.query_params else request.query_params.get("q", "")
    if not text:
        raise UsageError("nothing to search for", "type a regular expression")
    pattern = logs.pattern(text, "the search")
    return _lines(found, request, partial(lines.search, pattern=pattern))


def _download(found: WatchedJob, request: Request) -> Response:
    name = f"{request.path_params['job']}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    words = request.query_params.getlist("task")

    def produce(pipe: Pipe) -> None:
        try:
            fleet, state = found.open()
            lines.download(fleet, state, lines.tasks_of(state, words), pipe)
        except TfctlError as error:
            pipe.write(f"~~ {plain(error.message)}\n".encode())

    return stream(produce, "text/plain", headers)


def _lines(found: WatchedJob, request: Request, read: Callable[..., None]) -> Response:
    """Return the stream of what ``read`` sends about the job and the tasks that the request names."""
    words = request.query_params.getlist("task")

    def produce(pipe: Pipe) -> None:
        try:
            fleet, state = found.open()
            read(fleet, state, lines.tasks_of(state, words), pipe=pipe)
        except TfctlError as error:
            pipe.send("problem", problems([error])[0])
            pipe.send("end", {})

    return stream(produce)


def _number(request: Request, name: str) -> float | None:
    """Return a number of the query, or None without one. Raise UsageError if it is none."""
    word = request.query_params.get(name)
    if word is None:
        return None
    if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", word):
        raise UsageError(f"{name} is not a number")
    return float(word)
