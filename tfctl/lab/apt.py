"""Derive a node's apt sources, for any suite, from this machine's own.

Nothing here names a mirror: a lab uses what the machine uses. A machine without Debian sources (Ubuntu, say) gives
none, and mmdebstrap then takes its own default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tfctl.lab.host import run
from tfctl.node.versions import os_release

_ALIASES = ("stable", "oldstable", "oldoldstable", "testing")
_PARTS = ("", "-updates", "-security")
# Settings that decide whether a mirror can be reached and is trusted, as `apt-config dump` prints scalars.
_SETTING = re.compile(r"Acquire::((https?)::.+|Check-Valid-Until|Check-Date|Retries|ForceIPv4|ForceIPv6) \"[^\"]+\";")
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")


@dataclass(frozen=True)
class SourcesListLine:
    """One line of sources.list(5). ``signed_by`` is a path on this machine, or "" for apt's trusted keys."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    def __str__(self) -> str:
        options = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {options}{self.uri} {self.suite} {' '.join(self.components)}"


def sources(suite: str, etc: Path = Path("/etc")) -> tuple[SourcesListLine, ...]:
    """Return the sources of ``suite``, its updates and its security updates in this machine's Debian archive, or ()."""
    system = os_release([etc / "os-release"])
    own = system.get("VERSION_CODENAME", "") if system.get("ID") == "debian" else ""
    listed = [source for text in _texts(etc / "apt") for source in parse(text)]
    found = [mapped for source in listed if (mapped := _mapped(source, own, suite))]
    return tuple(dict.fromkeys(found))


def settings() -> str:
    """Return this machine's apt settings for proxies, CA and checks, as the text of a file in apt.conf.d."""
    lines = run(["apt-config", "dump", "Acquire"], check=False).stdout.splitlines()
    return "".join(f"{line}\n" for line in lines if _SETTING.fullmatch(line))


def logins(etc: Path = Path("/etc")) -> dict[str, str]:
    """Return the contents of apt's login files (apt_auth.conf(5)) by file name."""
    files = [etc / "apt/auth.conf", *sorted((etc / "apt/auth.conf.d").glob("*.conf"))]
    return {file.name: file.read_text() for file in files if file.is_file()}


def parse(text: str) -> list[SourcesListLine]:
    """Parse either format of sources.list(5). Skip disabled sources, flat repositories and ``deb-src``."""
    if re.search(r"^Types:", text, re.MULTILINE):
        return [source for stanza in re.split(r"\n\s*\n", text) for source in _stanza(stanza)]
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.split("#")[0].strip())
        if match and not match["suite"].endswith("/"):
            key = re.search(r"signed-by=(\S+)", match["options"] or "")
            components = tuple(match["components"].split())
            found.append(SourcesListLine(match["uri"], match["suite"], components, key[1] if key else ""))
    return found


def _stanza(text: str) -> Iterable[SourcesListLine]:
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.lower()
            fields[name] = value.strip()
    if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
        return
    components = tuple(fields.get("components", "").split())
    # A key embedded in the stanza is not a path: such a source then relies on apt's trusted keys.
    key = fields.get("signed-by", "")
    for uri in fields.get("uris", "").split():
        for suite in fields.get("suites", "").split():
            yield SourcesListLine(uri, suite, components, key if key.startswith("/") else "")


def _mapped(source: SourcesListLine, own: str, suite: str) -> SourcesListLine | None:
    """Return ``source`` changed to ``suite``, or None if it is not part of the machine's Debian archive."""
    base, _, part = source.suite.replace("/", "-").partition("-")
    if base not in (own, *_ALIASES) or "main" not in source.components or f"{'-' if part else ''}{part}" not in _PARTS:
        return None
    return SourcesListLine(source.uri, f"{suite}-{part}" if part else suite, ("main",), source.signed_by)


def _texts(folder: Path) -> list[str]:
    parts = folder / "sources.list.d"
    files = [folder / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    return [file.read_text() for file in files if file.is_file()]
