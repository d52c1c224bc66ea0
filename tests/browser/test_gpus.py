"""The tiles of GPUs. They are fakes: what nvidia-smi prints is written, and what the tasks use."""

from __future__ import annotations

import random
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import folder_of_pictures, serving, terminal
from tests.cluster.hosts import Hosts
from tests.cluster.test_nodes import put_gpus
from tests.cluster.test_top import put, worker
from tfctl.node import wire

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

CARDS = [str(number) for number in range(1, 9)]


def uses(number: int, use: int, memory: int) -> tuple[wire.GpuSample, ...]:
    """Return what so many GPUs read: about this use (percent) and memory (MiB)."""
    some = random.Random(use + memory)
    return tuple(
        wire.GpuSample(max(0, use - some.randint(0, 6)), memory + some.randint(0, 400), some.randint(58, 66),
                       20 + use // 2, 1980) for _ in range(number)
    )  # fmt: skip


def test_cluster_has_a_tile_for_each_gpu_that_says_who_uses_it(page: Page, module_hosts: Hosts) -> None:
    for name in module_hosts.names:
        put_gpus(module_hosts, *CARDS, host=name)
    stay = "command: [sleep, '600']\n"
    module_hosts.ok("start", module_hosts.file("resnet", f"{stay}roles: {{worker: {{per_host: 1, gpus: 4}}}}\n"))
    module_hosts.ok("start", module_hosts.file("tune", f"{stay}roles: {{worker: {{replicas: 5, gpus: 1}}}}\n"))
    percent = {"step": 31200, "total": 90000, "percent": 34.7, "left": 5040.0, "rate": 1310.0, "pace": 5.1}
    for index, name in enumerate(module_hosts.names):
        put(module_hosts, name, "resnet", worker(index, cpu=5.2 + index / 10, memory=9400, silent=0.4,
                                                 gpus=uses(4, 97, 18000), **percent))  # fmt: skip
    placed: dict[str, list[wire.TaskSample]] = {task["host"]: [] for task in module_hosts.status("tune")["tasks"]}
    for task in module_hosts.status("tune")["tasks"]:
        index = task["index"]
        sample = worker(index, cpu=1.1, memory=3100, silent=1.0, gpus=uses(1, 0 if index == 4 else 71, 7000),
                        step=900 + index, total=5000, percent=18.0, left=1500.0, rate=88.0)  # fmt: skip
        placed[task["host"]].append(sample)
    for name, samples in placed.items():
        put(module_hosts, name, "tune", *samples)
    with serving(module_hosts) as site:
        site.open(page, "cluster")
        expect(page.locator(".tile")).to_have_count(24)
        expect(page.locator(".tile.use")).to_have_count(16)
        expect(page.locator(".tile.idle")).to_have_count(1)
        expect(page.locator(".tile.free")).to_have_count(7)
        expect(page.locator(".facts")).to_contain_text("17 of 24")
        idle = page.locator(".tile.idle")
        expect(idle).to_have_attribute("href", "/logs/tune?task=worker/4")
        expect(idle).to_have_attribute(
            "aria-label", re.compile(r"NVIDIA L4 · tune worker/4 · 0 % in use · 6\.\d GiB of")
        )
        expect(page.locator(".legend")).to_be_visible()
        pictures = folder_of_pictures()
        if pictures:
            page.mouse.move(0, 0)
            page.screenshot(path=pictures / "cluster.png", clip={"x": 0, "y": 0, "width": 1440, "height": 460})
            module_hosts_top = terminal(page, "tfctl top", module_hosts.ok("top", "--once"))
            module_hosts_top.screenshot(path=pictures / "top.png")
