"""uv gets the settings of pip, which it does not read itself."""

from __future__ import annotations

import pytest

from tfctl.provision import uv

LISTED = """\
:env:.disable-pip-version-check='1'
:env:.find-links='/opt/wheels'
global.cert='/etc/ssl/company.crt'
global.extra-index-url='https://a/simple\\nhttps://b/simple'
global.find-links='/srv/wheels /srv/more'
global.index-url='https://mirror/simple'
global.trusted-host='mirror'
install.proxy="http://it's:3128"
"""


def test_settings_of_pip_become_variables_of_uv() -> None:
    variables, options = uv.of_pip(LISTED, {})
    assert variables == {
        "UV_DEFAULT_INDEX": "https://mirror/simple", "UV_INDEX": "https://a/simple https://b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match", "UV_FIND_LINKS": "/opt/wheels", "UV_INSECURE_HOST": "mirror",
        "SSL_CERT_FILE": "/etc/ssl/company.crt", "ALL_PROXY": "http://it's:3128",
    }  # fmt: skip
    assert options == []


@pytest.mark.parametrize(
    ("listed", "environ", "index", "expected"),
    [
        (LISTED, {"UV_DEFAULT_INDEX": "https://own/simple"}, "", "https://own/simple"),
        (LISTED, {"UV_DEFAULT_INDEX": "https://own/simple"}, "https://inventory/simple", "https://inventory/simple"),
        ("global.index-url='https://g/simple'\ninstall.index-url='https://i/simple'\n", {}, "", "https://i/simple"),
        ("", {}, "", None),
    ],
)
def test_an_index_of_tfctl_comes_before_that_of_uv_and_that_before_that_of_pip(
    listed: str, environ: dict[str, str], index: str, expected: str | None
) -> None:
    assert uv.of_pip(listed, environ, index)[0].get("UV_DEFAULT_INDEX") == expected


def test_pip_without_an_index_means_uv_without_an_index() -> None:
    assert uv.of_pip("global.no-index='true'\nglobal.find-links='/srv/wheels'\n", {}) == (
        {"UV_FIND_LINKS": "/srv/wheels"}, ["--no-index"]
    )  # fmt: skip


def test_what_uv_has_drawn_is_not_part_of_its_message() -> None:
    drawn = "\x1b[37m⠋\x1b[0m \x1b[2mResolving…\r\x1b[2K\x1b[1m\x1b[31merror\x1b[39m\x1b[0m: no such\n  package\n"
    assert uv.lines_of(drawn).splitlines()[-2:] == ["error: no such", "  package"]
    assert uv.message_of(drawn).endswith("error: no such package")
