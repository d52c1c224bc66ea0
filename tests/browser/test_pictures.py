"""Pictures of the page, to look at and for the documentation.

They are kept in the directory that the environment variable TFCTL_TEST_PICTURES names.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import folder_of_pictures, run, serving
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PROGRESS = (
    r"progress: '^(?P<step>\d+)/(?P<total>\d+) - .* (?P<step_time>\d+ms)/step - accuracy: (?P<accuracy>[\d.]+) "
    r"- loss: (?P<loss>[\d.]+)'"
)
#: Lines as Keras prints them, 4 a second. The loss falls from 2.3 and the accuracy rises, each with some noise.
TRAIN = r"""
    echo "digits: task $1 uses /data/digits, batches of 64, seed 1"
    [ $1 = 0 ] && printf '\033[33mWARNING\033[0m: no checkpoint in /data/digits/checkpoints: the training begins anew\n'
    echo "Epoch 1/5"
    exec /usr/bin/awk -v task=$1 'BEGIN {
        srand(task + 1)
        for (n = 40; n <= 1200; n += 4) {
            noise = (rand() - 0.5) / 20
            loss = 0.11 + 2.2 * exp(-n / 260) + noise * exp(-n / 700)
            accuracy = 0.985 - 0.88 * exp(-n / 210) + noise / 4
            time = 58 + int(rand() * 9)
            printf "%d/1200 - %ds - %dms/step - accuracy: %.4f - loss: %.4f\n", n, n / 16, time, accuracy, loss
            fflush()
            system("sleep 0.25")
        }
        system("sleep 600")
    }'
"""


def test_pictures_show_a_training(page: Page, sampled: Hosts, tmp_path: Path) -> None:
    folder = folder_of_pictures() or tmp_path
    run(sampled, "digits", "{chief: 1, worker: 4, ps: 1}", TRAIN, PROGRESS + "\n")
    with serving(sampled) as site:
        page.goto(site.url("curves/digits"))
        loss = page.locator("figure").first
        expect(loss.locator("b").first).to_have_text("loss", timeout=90_000)
        # Every task has some samples.
        expect(loss.locator("path.curve")).to_have_count(6, timeout=60_000)
        for curve in loss.locator("path.curve").all():
            expect(curve).to_have_attribute("d", re.compile("L.*L"), timeout=60_000)
        if folder_of_pictures():
            page.wait_for_timeout(75_000)  # a longer curve, and the report again
        loss.locator("svg").hover(position={"x": 330, "y": 60})
        page.screenshot(path=folder / "curves.png")
        site.open(page, "job/digits")
        expect(page.locator(".big-bar")).to_be_visible()
        page.screenshot(path=folder / "job.png")
        site.open(page, "logs/digits")
        expect(page.locator(".pill")).to_have_text("Following")
        page.get_by_label("Search with a regular expression").fill("accuracy: 0.9")
        page.keyboard.press("Enter")
        expect(page.locator(".line.selected mark")).to_be_visible()
        page.screenshot(path=folder / "logs.png")
    assert len(list(folder.glob("*.png"))) >= 3
