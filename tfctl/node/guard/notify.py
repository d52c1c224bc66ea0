"""Tell people how a job has ended, or that it has stalled, as its policy says."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPException
from urllib import error, request

from .. import names, wire
from .head import Outcome
from .host_access import HostAccess, RequestFailed

_TRIES = 3
_TIMEOUT_S = 10.0
_PAUSE_S = 2.0


async def notify(here: HostAccess, wanted: wire.Notify, record: wire.Record, outcome: Outcome) -> None:
    """Run the program and send the POST. Note how that went; a failure has no other consequence."""
    culprit = outcome.culprit
    why = culprit and {
        "task": names.task(*culprit.task.name), "host": culprit.task.host, "kind": culprit.kind,
        "sentence": culprit.sentence, "remedy": culprit.remedy,
    }  # fmt: skip
    text = json.dumps(
        {
            "job": record.job, "attempt": record.attempt, "state": outcome.state, "reason": outcome.reason,
            "finished": outcome.finished, "host": here.host, "why": why,
        }
    )  # fmt: skip
    if wanted.command:
        try:
            trouble = await here.notify(text)
        except RequestFailed as failed:
            trouble = str(failed)
        here.note(record.attempt, "notify", f"the program failed: {trouble}" if trouble else "the program has run")
    if wanted.url is not None:
        trouble = await _post(wanted.url, text.encode())
        here.note(record.attempt, "notify", f"the POST failed: {trouble}" if trouble else "the POST was accepted")


async def _post(url: str, body: bytes) -> str:
    """Send the body, three times at most. Return the last error without the URL, or ""."""
    trouble = ""
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(_PAUSE_S)
        trouble = await asyncio.get_running_loop().run_in_executor(None, _post_once, url, body)
        if not trouble:
            break
    return trouble


class _NoRedirect(request.HTTPRedirectHandler):
    """Follow no redirect: the POST would become a GET without the body."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post_once(url: str, body: bytes) -> str:
    try:
        asked = request.Request(url, body, {"Content-Type": "application/json"})
        with request.build_opener(_NoRedirect).open(asked, timeout=_TIMEOUT_S):
            return ""
    except error.HTTPError as refused:
        return f"status {refused.code}"
    except error.URLError as failed:
        return str(failed.reason).replace(url, "the URL")
    except (OSError, ValueError, HTTPException) as failed:  # their texts may contain the URL
        return type(failed).__name__
