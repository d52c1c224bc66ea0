"""Job files, files of variables and variables of an inventory, whatever they contain: only an error that names the file
and the place, and none that takes seconds to find."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.cases import FUZZER, Cases
from tfctl.errors import TfctlError
from tfctl.model import env_file, load
from tfctl.remote import ansible_cfg, hostvars

pytestmark = FUZZER

ROOT = Path(__file__).parents[2]
#: What YAML, tfctl's text and regular expressions may stumble over.
BITS = [
    "&a ", "*a", "<<: *a", "!!python/object:os.system x", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "? [a]\n: b",
    "{", "}", "[", "]", ": ", "- ", "|\n", ">-\n", "'", '"', "\t", "\0", "\ufeff", "\u2028", "\U0010ffff", "\x85",
    "null", "~", "yes", "0x10", "1e999", "1:30", "-0", "9" * 33, ".inf", ".nan", "2026-11-28", "a{99999999999}",
    "(?P<step>(a+)+)$", "(" * 200, "(" * 3000, "(?L)a", "%", "{index}", "{{", "${X}", "$${", "\\", "=", "\r\n", "#",
    "name:", "roles:", "policy:", "env:", "command:", "deadline: 9999999999d", "gpus: 1e3",
    "progress: 'x{99999999999}(?P<step>1)'", "output: /", "code: {path: ., include: ['../x']}",
    "notify: {url: 'file:///etc/passwd'}", "[" * 3000,
]  # fmt: skip
WORDS = [
    "A=", "B", "'", '"', "\n", "\\", "${", "$${", "#", " ", "x", "export ", "\0", "\ud800", "=", "TFCTL_X=",
]  # fmt: skip
#: The longest time (s) of a case, on a slow machine.
SLOW_S = 10.0


def read_one(cases: Cases, number: int, read: Callable[..., object], *given: Any, text: object) -> None:
    """Call ``read``. Only our own errors are right, and soon."""
    began = time.process_time()
    try:
        read(*given)
    except TfctlError as error:
        if not error.message:
            cases.fault(number, "an error without a message", text)
    except Exception as error:
        cases.fault(number, f"{type(error).__name__}: {error}", text)
    if time.process_time() - began > SLOW_S:
        cases.fault(number, "it takes too long", text)


def changed(text: str, draw: Random) -> str:
    """Return a job file with a few changes."""
    for _ in range(draw.randint(1, 5)):
        at, how = draw.randrange(len(text) + 1), draw.random()
        if how < 0.5:
            text = text[:at] + draw.choice(BITS) + text[at:]
        elif how < 0.7:
            text = text[:at] + text[at + draw.randint(1, 20) :]
        else:
            lines = text.split("\n")
            place = draw.randrange(len(lines))
            key, colon, _ = lines[place].partition(":")
            lines[place] = f"{key}: {draw.choice(BITS)}" if colon else draw.choice(lines)
            text = "\n".join(lines)
    return text


def test_a_job_file_is_loaded_or_its_faults_are_named(tmp_path: Path) -> None:
    examples = [path.read_text() for path in sorted((ROOT / "examples").glob("*/*.yaml"))]
    path, cases = tmp_path / "job.yaml", Cases(400)
    for number, draw in cases:
        text = changed(draw.choice(examples), draw)
        path.write_text(text, errors="replace")
        read_one(cases, number, load.load, path, text=text)
    cases.require_none(least=50)


def test_a_value_of_a_job_file_is_taken_or_refused(tmp_path: Path) -> None:
    keys = ("progress", "command", "output", "ports", "hosts", "strategy", "inventory", "env_file", "requirements")
    path, cases = tmp_path / "job.yaml", Cases(1500)
    for number, draw in cases:
        quoted = draw.choice(BITS).replace("'", "''")
        text = f"name: a\nstrategy: custom\nroles: {{worker: 1}}\ncommand: x\n{draw.choice(keys)}: '{quoted}'\n"
        path.write_text(text, errors="replace")
        read_one(cases, number, load.load, path, text=text)
    cases.require_none(least=100)


def test_a_file_of_variables_is_read_or_its_fault_is_named() -> None:
    cases = Cases(20_000)
    for number, draw in cases:
        text = "".join(draw.choice(WORDS) for _ in range(draw.randint(1, 30)))
        read_one(cases, number, env_file.parse, text, Path(".env"), text=text)
    cases.require_none(least=1000)


VALUES: list[Any] = [
    None, "", 1, True, 1.5, [], {}, ["a"], {"__ansible_unsafe": "x"}, {"__ansible_unsafe": {"a": 1}},
    {"__ansible_vault": "x"}, "a b", "'", "-x", "{{ x }}", "22", "٢٢", "9" * 20, "10.0.0.1", "a:1", "~nosuch/x", "~",
    "\n", "\ud800", "/x/../y", ["/a", None], "2222-2299", "9-1", "²", "a\u0085", "-oProxyCommand=x", ["a", ["b"]], b"x",
    float("nan"), "-o Port=²", "-o UserKnownHostsFile=\"'x\"",
]  # fmt: skip
VARIABLES = (
    "ansible_host", "ansible_port", "ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args",
    "ansible_ssh_args", "tfctl_ports", "tfctl_output_roots", "tfctl_stack_dirs", "tfctl_stack", "tfctl_address",
    "tfctl_ssh", "ansible_connection", "ansible_password",
)  # fmt: skip
NAMES = ["node1", "a b", "-x", "..", "x/y", "é", "\ud800", "fe80::1", "*", "a" * 5000]


def test_the_variables_of_a_host_are_read_or_their_fault_is_named() -> None:
    cases, settings = Cases(5000), ansible_cfg.read()
    for number, draw in cases:
        name = draw.choice(NAMES)
        known = {variable: draw.choice(VALUES) for variable in draw.sample(VARIABLES, 4)}
        read_one(cases, number, hostvars.host, Path("/x/inventory"), name, known, settings, text=(name, known))
    cases.require_none(least=500)
