"""uv as a program, with the settings of pip: uv does not read pip's configuration."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tfctl.errors import TfctlError

#: Lists in the settings of pip are separated by white space; those in variables of uv by what stands here.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
}
#: Sections of the settings, the most important one last.
_SECTIONS = ("global", "install", ":env:")
_ESCAPE = re.compile(r"(?:\x1b\[[0-9;?]*[A-LN-Za-ln-z]|\r)+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: A user's name and password in a URL.
_SECRET = re.compile(r"//[^@/\s]*@")
_NO_NETWORK = re.compile(
    r"error sending request|Failed to (?:fetch|download)|dns error|error trying to connect|timed out|"
    r"[Nn]etwork connectivity is disabled",
)


def program() -> str:
    """Return the path of uv: that of tfctl's own environment, else the one on PATH. Raise TfctlError."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    if found is None:
        raise TfctlError("uv is not installed on this machine", "install it: pip install uv")
    return found


def settings(index: str = "") -> tuple[dict[str, str], list[str]]:
    """Return variables with which uv uses pip's index, mirrors, certificates and proxy, and options.

    Variables of uv that are set keep their values. ``index``: the package index, in place of that of the settings.
    """
    words = [sys.executable, "-m", "pip", "config", "list"]
    # Not a file such as pip.py in the current directory.
    safe = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(words, env=safe, capture_output=True, text=True, timeout=60, check=False)
    return of_pip(done.stdout, os.environ, index)


def of_pip(listed: str, environ: Mapping[str, str], index: str = "") -> tuple[dict[str, str], list[str]]:
    """Do the same for the output of `pip config list`."""
    found: dict[str, str] = {}
    lines = re.findall(r"^([^.\s]+)\.([a-z-]+)=('.*'|\".*\")$", listed, re.MULTILINE)
    for section in _SECTIONS:
        found |= {key: ast.literal_eval(text) for own, key, text in lines if own == section}
    made = {name: mark.join(found[key].split()) for key, (name, mark) in _VARIABLES.items() if found.get(key)}
    if "UV_INDEX" in made:  # like pip, take the best version from all indexes; hashes protect against wrong files
        made["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    options = ["--no-index"] if found.get("no-index", "").lower() in ("1", "true", "yes", "on") else []
    return {**made, **environ, **({"UV_DEFAULT_INDEX": index} if index else {})}, options


def lines_of(output: str) -> str:
    """Return what uv has printed without colours, with what it has drawn over on lines of its own."""
    return _ESCAPE.sub("\n", _COLOUR.sub("", output))


def message_of(output: str) -> str:
    """Return what uv has printed as one line."""
    return re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e]", " ", lines_of(output))).strip()


def reasons(output: str) -> list[str]:
    """Return the errors that uv has printed, each with its causes behind it, without passwords in URLs."""
    output = _SECRET.sub("//", output)
    errors = re.split(r"^\s*(?:error|cause|Caused by|├─▶|╰─▶|\u00d7):?\s*", lines_of(output), flags=re.MULTILINE)
    return [message_of(reason) for reason in errors[1:]] or [message_of(output)[-500:]]


def failure(what: str, errors: list[str]) -> tuple[str, bool]:
    """Return why ``what`` could not be installed, as a sentence, and whether that is because of the network."""
    text = " ".join(errors)
    if not _NO_NETWORK.search(text):
        return f"{what} cannot be installed: {': '.join(errors)[:1000]}", False
    url = re.search(r"(?:https?|file)://[^\s)`]+", text)
    return f"{what} cannot be downloaded from {url[0] if url else 'the package index'}: {errors[-1]}", True
