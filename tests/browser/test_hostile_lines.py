"""Lines that want to be more than text."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import Site, lines, run, until_printed
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HOSTILE = r"""
    echo '<script>window.hacked=1</script>'
    echo '<img src=x onerror="window.hacked=1">'
    echo '"><svg onload=window.hacked=1>'
    printf '\033[31mred\033[0m and \033[1;32mbold green\033[0m\n'
    printf '\033]0;a new title\007after the title\n'
    printf '\033[2J\033[1;1Hcleared\n'
    printf 'state one\rstate two\r 50%%\r100%% done\n'
    printf 'right to left \342\200\256txt.exe\342\200\254 end\n'
    printf 'bytes \000\001\010 and \377\376 end\n'
    /usr/bin/head -c 300000 /dev/zero | /usr/bin/tr '\0' y; echo
    echo 'Error: <b>window.hacked=1</b>' >&2
    echo the end
    exec sleep 600
"""


@pytest.fixture
def hostile(page: Page, module_hosts: Hosts, site: Site) -> Page:
    if not module_hosts("status", "hostile").out:
        run(module_hosts, "hostile", "{worker: 1}", HOSTILE)
    until_printed(module_hosts, "hostile", "the end")
    site.open(page, "logs/hostile")
    expect(page.locator(".line").last).to_contain_text("the end")
    return page


def test_lines_are_text_whatever_they_contain(hostile: Page) -> None:
    shown = lines(hostile)
    for line in ("<script>window.hacked=1</script>", '<img src=x onerror="window.hacked=1">',
                 '"><svg onload=window.hacked=1>', "red and bold green", "after the title",
                 "Error: <b>window.hacked=1</b>"):  # fmt: skip
        assert line in shown
    assert hostile.evaluate("window.hacked") is None
    assert hostile.locator(".lines :is(script, img, svg, b)").count() == 0
    assert "new title" not in hostile.title() and not any("a new title" in line for line in shown)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", "".join(shown))


def test_lines_have_the_colours_that_their_escapes_name(hostile: Page) -> None:
    assert hostile.locator(".line .ansi1").all_inner_texts() == ["red"]
    assert hostile.locator(".line .ansi2.bold").all_inner_texts() == ["bold green"]


def test_progress_bar_is_folded_to_its_last_state(hostile: Page) -> None:
    assert "⟳ 3 100% done" in lines(hostile)


def test_directions_and_bytes_that_are_not_text_are_question_marks(hostile: Page) -> None:
    shown = lines(hostile)
    assert "right to left ?txt.exe? end" in shown
    assert any(re.fullmatch(r"bytes .*\?.* and .* end", line) for line in shown)


def test_long_line_is_cut_and_its_length_is_shown(hostile: Page) -> None:
    [long] = [line for line in lines(hostile) if line.startswith("yyy")]
    assert len(long) < 2100 and long.endswith("characters")
    assert hostile.evaluate("document.documentElement.scrollWidth") <= 1440


def test_selected_line_is_text_in_its_detail_when_it_is_hostile(hostile: Page) -> None:
    hostile.locator(".line").filter(has_text="<script>").click()
    expect(hostile.locator(".line-detail pre")).to_have_text("<script>window.hacked=1</script>")
    hostile.locator(".line").filter(has_text="<img").click()
    expect(hostile.locator(".line-detail pre")).to_have_text('<img src=x onerror="window.hacked=1">')
    assert hostile.locator(".line-detail :is(script, img)").count() == 0
    assert hostile.evaluate("window.hacked") is None


def test_matches_are_text_when_the_lines_are_hostile(hostile: Page) -> None:
    hostile.get_by_label("Search with a regular expression").fill("<.*hacked")
    hostile.keyboard.press("Enter")
    expect(hostile.locator(".found")).to_contain_text("4 matches")
    expect(hostile.locator(".line mark").first).to_have_text("<script>window.hacked")
    assert hostile.evaluate("window.hacked") is None
