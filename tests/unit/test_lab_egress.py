"""How a lab node reaches the network as this machine does: name servers, pip settings, apt sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfctl.lab import apt, egress


def test_loopback_name_server_is_skipped(tmp_path: Path) -> None:
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("nameserver 127.0.0.53\n")
    real.write_text("# by resolved\nnameserver 192.0.2.1\nsearch example\n")
    assert egress.resolv_conf([tmp_path / "none", stub, real]) == real.read_text()
    assert egress.resolv_conf([stub]) == ""


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://index.example/simple", True),
        ("http://192.0.2.1:3128", True),
        ("file:///srv/wheels/simple", False),
        ("http://localhost:3128", False),
        ("http://127.0.0.1:8080/x", False),
        ("http://[::1]:8080", False),
        ("", False),
    ],
)
def test_url_of_this_machine_is_not_reachable_from_a_node(url: str, wanted: bool) -> None:
    assert egress.reachable(url) is wanted


def test_pip_settings_come_from_the_source_with_the_highest_precedence(tmp_path: Path) -> None:
    weak, strong = tmp_path / "weak", tmp_path / "strong"
    weak.write_text(
        "[global]\nindex-url = https://weak.example\nextra-index-url = https://x.example\n  https://y.example\n"
    )
    strong.write_text("[install]\nindex-url = https://strong.example/%20a\n")
    files = [weak, tmp_path / "none", strong]
    assert egress.pip_settings({}, files)["index-url"] == "https://strong.example/%20a"
    assert egress.pip_settings({}, files)["extra-index-url"].split() == ["https://x.example", "https://y.example"]
    assert egress.pip_settings({"PIP_INDEX_URL": "https://env.example"}, files)["index-url"] == "https://env.example"


DEB822 = """\
Types: deb deb-src
# the archive
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
"""
ONE_LINE = """\
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main # comment
deb-src http://mirror.example/debian bookworm main
# deb http://off.example/debian bookworm main
deb http://flat.example ./
deb http://tools.example tools-bookworm main
deb http://mirror.example/old bookworm/updates main
"""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    return tmp_path


def test_deb822_sources_are_rewritten_for_another_suite(etc: Path) -> None:
    (etc / "apt/sources.list.d/debian.sources").write_text(DEB822)
    assert [str(source) for source in apt.sources("trixie", etc)] == [
        "deb [signed-by=/usr/share/keyrings/archive.gpg] http://mirror.example/debian trixie main",
        "deb [signed-by=/usr/share/keyrings/archive.gpg] http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/security trixie-security main",
    ]


def test_one_line_sources_of_the_same_suite_are_kept(etc: Path) -> None:
    (etc / "apt/sources.list").write_text(ONE_LINE)
    assert [str(source) for source in apt.sources("bookworm", etc)] == [
        "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main",
        "deb http://mirror.example/old bookworm-updates main",
    ]


def test_machine_other_than_debian_has_no_debian_sources(etc: Path) -> None:
    (etc / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    (etc / "apt/sources.list").write_text("deb http://mirror.example/ubuntu noble main\n")
    assert apt.sources("bookworm", etc) == ()
