"""`scripts/bench page`: what the page of `tfctl ui` costs a browser and tfctl while many tasks print many lines.

The hosts are those of the rig: fakes that print at a fixed rate. The browser is Debian's chromium without a GPU, so
that drawing costs the processor more than on a desktop.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import CDPSession, Page, sync_playwright

from scripts.bench_scale.command import bench_environment, job_file, words
from scripts.bench_scale.journal import PATTERN
from scripts.bench_scale.measure import Child, run
from scripts.bench_scale.rig import Rig

#: Records how late (ms) each frame is drawn.
_WATCH_FRAMES = """
    window.lateness = [];
    let before = performance.now();
    const frame = (now) => {
        window.lateness.push(now - before - 1000 / 60);
        before = now;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
"""
_LIMIT_MS = 60_000


class Looked(NamedTuple):
    """``first_paint``: ms until something is drawn; ``lines_shown``: ms until lines are. ``lines``: how many the tasks
    have printed while somebody looked; ``lag``: s between the time of the last line shown and now. ``late``: frames
    more than 100 ms late, of ``frames``; ``worst``: ms. ``heap``: MB after a collection of garbage. ``share``: of a
    core that tfctl used."""

    first_paint: float
    lines_shown: float
    lines: int
    lag: float
    frames: int
    late: int
    worst: float
    heap: float
    share: float


def main(given: Sequence[str]) -> int:
    """Measure, print the figures as JSON on stdout and return 0."""
    parser = argparse.ArgumentParser(prog="bench page", description=__doc__)
    parser.add_argument("--hosts", type=int, default=200, help="hosts with a task each; default: 200")
    parser.add_argument("--rate", type=float, default=50.0, help="lines a second of each task; default: 50")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to look; default: 30")
    found = parser.parse_args(given)
    with (
        tempfile.TemporaryDirectory(prefix="tfctl-bench-") as folder,
        Rig(Path(folder), found.hosts, 1, found.rate) as rig,
    ):
        looked = measured(rig, found.seconds, found.rate * found.hosts)
    print(json.dumps({"processors": os.cpu_count(), "hosts": found.hosts, "rate": found.rate, **looked._asdict()}))
    return 0


def measured(rig: Rig, seconds: float, rate: float) -> Looked:
    """Look at the lines of a job on the hosts of the rig, which print so many a second together."""
    environment = bench_environment(rig.folder)
    run(words(rig, "start", str(job_file(rig))), environment, rig.folder, 120.0)
    ours, theirs = os.pipe()
    with (
        os.fdopen(ours) as source,
        os.fdopen(theirs, "wb") as sink,
        Child(words(rig, "ui", "scale"), environment, rig.folder, sink.fileno()) as child,
        sync_playwright() as playwright,
    ):
        sink.close()
        url = source.readline().strip()
        chromium = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            return _look(browser.new_page(viewport={"width": 1440, "height": 900}), url, child, seconds, rate)
        finally:
            browser.close()


def _look(page: Page, url: str, child: Child, seconds: float, rate: float) -> Looked:
    page.goto(url)
    page.goto(f"{url.partition('?')[0]}logs/scale")
    page.wait_for_selector(".line", timeout=_LIMIT_MS)  # tfctl has connected to all hosts
    began = time.monotonic()
    page.goto(f"{url.partition('?')[0]}logs/scale")
    page.wait_for_selector(".line", timeout=_LIMIT_MS)
    shown = (time.monotonic() - began) * 1000
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    time.sleep(5.0)  # the last lines before now have been sent
    page.evaluate(_WATCH_FRAMES)
    since, cpu = time.monotonic(), child.cpu()
    page.wait_for_timeout(seconds * 1000)
    took, used = time.monotonic() - since, child.cpu() - cpu
    lateness = [float(each) for each in page.evaluate("window.lateness")]
    lag = time.time() - _last_printed(page)
    return Looked(
        round(paint),
        round(shown),
        round(took * rate),
        round(lag, 2),
        len(lateness),
        sum(each > 100 for each in lateness),
        round(max(lateness)),
        round(_heap(page.context.new_cdp_session(page)) / 1e6, 1),
        round(used / took, 2),
    )


def _last_printed(page: Page) -> float:
    """Return when the last line that is shown was printed (epoch s)."""
    texts = page.locator(".line .text").all_text_contents()
    found = [float(match[3]) for text in texts if (match := re.search(PATTERN, text.encode()))]
    return max(found, default=0.0)


def _heap(session: CDPSession) -> float:
    """Return the bytes of JavaScript's heap that are in use."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
