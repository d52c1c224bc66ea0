from __future__ import annotations
import time, os
import pytest
from pathlib import Path
from tests.browser.conftest import *
from tests.browser.pages import *

OUT = Path("/tmp/shots"); OUT.mkdir(exist_ok=True)
TRAIN = """
    n=0
    printf '\\033[32mINFO\\033[0m <script>alert(1)</script> started %s\\n' $1
    printf 'a\\rb\\r 10%%\\r 50%%\\r 100%% done\\n'
    python3 -c 'print("x" * 300000)'
    while [ $n -lt 2000 ]; do n=$((n + 1)); echo "step $n/2000 - loss: 0.$((2000 - n)) - accuracy: 0.$n"; sleep 0.1; done
"""
@pytest.mark.timeout(300)
def test_shots(guarded, browser):
    hosts = guarded
    for t in hosts.trees.values(): (t / "samples").touch()
    hosts.ok("start", hosts.file("digits", "command: [sh, train, '{index}']\nprogress: auto\nroles: {worker: 6}\n" if False else "command: [sh, train, '{index}']\nroles: {worker: 6}\n", train=TRAIN))
    hosts("start", hosts.file("broken", "command: [sh, -c, 'echo begun; echo Traceback \\(most recent call last\\):; echo ValueError: no; exit 3']\nroles: {chief: 1}\n"), "--wait")
    wait = float(os.environ.get("SHOT_WAIT", "25"))
    time.sleep(wait)
    with serving(hosts) as url:
        for scheme in ("light", "dark"):
          for width in ((1440, 360) if scheme == "light" else (800,)):
            with browser.new_context(viewport={"width": width, "height": 900 if width > 400 else 740}, color_scheme=scheme) as context:
                page = context.new_page(); found = watched(page)
                page.goto(url)
                for name in ("cluster", "job/digits", "logs/digits", "curves/digits", "more/digits", "job/broken", "logs/broken"):
                    page.goto(url.split("/?")[0] + "/" + name); page.wait_for_timeout(3500)
                    page.screenshot(path=OUT / f"{name.replace('/', '-')}-{width}-{scheme}.png")
                    print(name, page.evaluate("document.documentElement.scrollWidth"), found.complaints)
