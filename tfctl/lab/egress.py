"""This machine's network access, which its nodes share: name servers, proxies, package index, certificates."""

from __future__ import annotations

import configparser
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tfctl.lab import apt
from tfctl.lab.host import run
from tfctl.lab.spec import Progress

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_OWN_CAS = Path("/usr/local/share/ca-certificates")
_RESOLV = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/resolv.conf")


@dataclass(frozen=True)
class Egress:
    """Settings for network access. An empty string means that this machine needs none."""

    resolv_conf: str = ""
    mtu: int = 1500
    ca_bundle: str = ""  # PEM text
    own_cas: Mapping[str, str] = field(default_factory=dict)  # file name → PEM, what update-ca-certificates(8) adds
    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    http_proxy: str = ""
    https_proxy: str = ""
    apt_settings: str = ""
    apt_logins: Mapping[str, str] = field(default_factory=dict)


def read(progress: Progress) -> Egress:
    """Read the settings from this machine's current state."""
    environ = os.environ
    pip = pip_settings(environ, pip_files(environ))
    index, extra = pip.get("index-url", "").split(), pip.get("extra-index-url", "").split()
    http, https = (_variable(environ, name) for name in ("http_proxy", "https_proxy"))
    hidden = [_without_login(url) for url in (*index, *extra, http, https) if url and not reachable(url)]
    if hidden:
        progress(f"the nodes cannot reach these, which this machine is configured to use: {' '.join(hidden)}")
    if not (servers := resolv_conf([Path(path) for path in _RESOLV])):
        progress("the nodes get no name server: this machine's own answers only on its loopback address")
    bundles = (environ.get("SSL_CERT_FILE", ""), *_BUNDLES)
    ca_path = next((path for path in bundles if path and Path(path).is_file()), "")
    return Egress(
        resolv_conf=servers,
        mtu=_mtu(),
        ca_bundle=Path(ca_path).read_text() if ca_path else "",
        own_cas={file.name: file.read_text() for file in sorted(_OWN_CAS.glob("**/*.crt"))},
        index_url=next((url for url in index if reachable(url)), ""),
        extra_index_urls=tuple(url for url in extra if reachable(url)),
        http_proxy=http if reachable(http) else "",
        https_proxy=https if reachable(https) else "",
        apt_settings=apt.settings(),
        apt_logins=apt.logins(),
    )


def reachable(url: str) -> bool:
    """Return whether a node can use the URL: http or https, and not a loopback address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or host in ("", "localhost"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def resolv_conf(files: Sequence[Path]) -> str:
    """Return the text of the first file whose name servers are not loopback addresses, which no node could reach."""
    for file in files:
        text = file.read_text() if file.is_file() else ""
        servers = [line.split()[1] for line in text.splitlines() if re.match(r"nameserver\s+\S", line)]
        if servers and not any(ipaddress.ip_address(server.split("%")[0]).is_loopback for server in servers):
            return text
    return ""


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, in ascending order of precedence (pip's documentation, Configuration)."""
    home = Path(environ.get("HOME", "/root"))
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf", user]
    if "VIRTUAL_ENV" in environ:
        files.append(Path(environ["VIRTUAL_ENV"]) / "pip.conf")
    if "PIP_CONFIG_FILE" in environ:
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    return files


def pip_settings(environ: Mapping[str, str], files: Sequence[Path]) -> dict[str, str]:
    """Return ``index-url`` and ``extra-index-url`` as pip would use them: from the files, then the environment."""
    names = ("index-url", "extra-index-url")
    found: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser(strict=False)
        if file.is_file():
            parser.read_string(file.read_text())
        for section in ("global", "install"):
            found |= {name: parser[section][name] for name in names if parser.has_option(section, name)}
    return found | {name: environ[key] for name in names if (key := f"PIP_{name.upper().replace('-', '_')}") in environ}


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper(), "")


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _mtu() -> int:
    """Return the MTU of the default route, which a node's packets must not exceed."""
    match = re.search(r"\bdev (\S+)", run(["ip", "-4", "route", "show", "default"], check=False).stdout)
    file = Path("/sys/class/net") / (match[1] if match else "lo") / "mtu"
    return min(int(file.read_text()), 1500) if file.is_file() else 1500
