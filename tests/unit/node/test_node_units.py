"""Which units a node accepts: exactly those that tfctl renders, and none with an additional line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from node_tree import DROP_IN, make_task, restrictions

from tfctl.node import names, unitfile

THIS: dict[str, Any] = {
    "job": "digits-ps", "attempt": 3, "run": "00000000", "role": "worker", "index": 0, "output": "/srv/tfctl/digits-ps",
    "ports": [2222, 2223], "gpus": ["GPU-a"],
}  # fmt: skip
UNIT = f"""\
[Unit]
Description=tfctl digits-ps worker/0
StartLimitIntervalSec=infinity
StartLimitBurst=4
{restrictions("Unit")}
[Service]
Type=exec
Slice=tfctl-digits_ps.slice
EnvironmentFile=/run/tfctl/env/tfctl-digits-ps-worker-0.env
UnsetEnvironment=http_proxy https_proxy
WorkingDirectory=/var/lib/tfctl/jobs/digits-ps/3/code
ExecStart=:/usr/bin/env "python" "a \\"b\\" \\\\ 100%% $HOME" ";"
ExecStopPost=/usr/local/lib/tfctl/current/end /var/lib/tfctl/jobs/digits-ps/3/worker-0
Restart=on-failure
RestartSec=2s
RestartForceExitStatus=42 SIGHUP SIGINT SIGTERM SIGPIPE
KillMode=mixed
TimeoutStopSec=30
ReadWritePaths="/var/lib/tfctl/jobs/digits-ps/3" "/var/lib/tfctl/home" "/srv/tfctl/digits-ps"
LogExtraFields=TFCTL_RUN=00000000
SyslogIdentifier=worker/0
MemoryMax=16G
MemorySwapMax=0
CPUQuota=50%
{restrictions("Service")}
[X-Tfctl]
Ports=2222 2223
Gpus=GPU-a
Deadline=43200
"""
LINES = UNIT.splitlines()
COMMAND, END, WRITABLE = (
    next(line for line in LINES if line.startswith(f"{key}="))
    for key in ("ExecStart", "ExecStopPost", "ReadWritePaths")
)
#: Directives that would hand root, or another's files, to whoever writes the unit.
HARMFUL = [
    "User=root", "ExecStart=+/bin/sh -c id", "ExecStartPre=/bin/true", "ExecStartPre=+/bin/sh", "ExecStopPost=+/bin/sh",
    "EnvironmentFile=/etc/shadow", "Environment=LD_PRELOAD=/tmp/x.so", "BindPaths=/etc", "ReadWritePaths=/",
    "PermissionsStartOnly=yes", "AmbientCapabilities=CAP_SYS_ADMIN", "NoNewPrivileges=no", "[Install]", "[Service]",
    "WantedBy=multi-user.target", "Slice=system.slice", "OnFailure=evil.service", ".include /etc/x", "Type=exec",
    "Restart=always", "X-Other=1", " ", "# comment", "; comment", "Ports=1",
]  # fmt: skip


COMMANDS = [
    '/usr/bin/env "a"', '+/usr/bin/env "a"', ':+/usr/bin/env "a"', ':!/usr/bin/env "a"', ':-/usr/bin/env "a"',
    ':@/usr/bin/env "a"', ':/bin/sh "a"', ":/usr/bin/env a", ':/usr/bin/env "a" ; /bin/sh', ':/usr/bin/env "a"b',
    ':/usr/bin/env "100%"', ':/usr/bin/env "%u"', ':/usr/bin/env "a\\"', ":/usr/bin/env", ':/usr/bin/env "a" \\',
    ':/usr/bin/env "a"\t"b"', ':/usr/bin/env  "a"', "",
    # Escapes that systemd replaces before it expands specifiers, or that tfctl does not write.
    *(f':/usr/bin/env "{escape}n"' for escape in (
        "\\x25", "\\X25", "\\45", "\\045", "\\u0025", "\\U00000025", "\\x41", "\\x2", "\\x00", "\\x80", "\\s", "\\a",
        "\\'", "\\%", "\\%%", "%%%", "\\\\\\x25",
    )),
]  # fmt: skip


#: What some reader takes for the end of a line, and a continuation.
BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\\\n"]


def accepts(text: str) -> bool:
    try:
        unitfile.check(text, **THIS)
    except unitfile.NotAllowed:
        return False
    return True


def test_rendered_units_are_accepted() -> None:
    assert accepts(UNIT)
    assert accepts("\n".join(line for line in LINES if not line.startswith(("RestartSec", "Deadline", "Unset"))))


@given(st.text(st.characters(codec="latin-1", exclude_characters="\0")))
def test_a_word_of_a_command_is_quoted_without_changing_it(text: str) -> None:
    """Read back by the rules of systemd.service(5): C escapes, and a doubled % for %."""
    word = unitfile.word(text)
    assert re.fullmatch(r'"[^\x00-\x1f]*"', word)
    assert "%" not in word.replace("%%", "")
    assert word[1:-1].replace("%%", "%").encode("latin-1").decode("unicode_escape") == text


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("Description=tfctl digits-ps worker/0", "Description=x"),
        ("Type=exec", "Type=oneshot"),
        ("Slice=tfctl-digits_ps.slice", "Slice=tfctl-digits.slice"),
        ("EnvironmentFile=/run/tfctl/env/tfctl-digits-ps-worker-0.env", "EnvironmentFile=-/etc/shadow"),
        ("WorkingDirectory=/var/lib/tfctl/jobs/digits-ps/3/code", "WorkingDirectory=/"),
        ("Restart=on-failure", "Restart=always"),
        ("RestartSec=2s", "RestartSec=2s;id"),
        ("TimeoutStopSec=30", "TimeoutStopSec=infinity"),
        ("KillMode=mixed", "KillMode=none"),
        ("KillMode=mixed", "KillMode=process"),
        ("UnsetEnvironment=http_proxy https_proxy", "UnsetEnvironment=a=b"),
        ("LogExtraFields=TFCTL_RUN=00000000", "LogExtraFields=TFCTL_RUN=11111111"),
        ("SyslogIdentifier=worker/0", "SyslogIdentifier=sshd"),
        ("Ports=2222 2223", "Ports=2222"),
        ("Gpus=GPU-a", "Gpus="),
        ("Deadline=43200", "Deadline=0"),
        ("Deadline=43200", "Deadline=12h"),
        ("MemoryMax=16G", "MemoryMax=infinity"),
        ("MemoryMax=16G", "MemoryMax=80%"),
        ("MemoryMax=16G", "MemoryMax=0"),
        ("MemorySwapMax=0", "MemorySwapMax=infinity"),
        ("CPUQuota=50%", "CPUQuota="),
        ("CPUQuota=50%", "CPUQuota=0%"),
        ("CPUQuota=50%", "CPUQuota=0.5"),
        ("\nUser=tfctl\n", "\nUser=root\n"),
        ("\nUser=tfctl\nGroup=tfctl\n", "\nGroup=tfctl\nUser=tfctl\n"),
        ("SupplementaryGroups=\n", "SupplementaryGroups=root\n"),
        ("Environment=HOME=", "Environment=LD_PRELOAD=/x HOME="),
        ("NoNewPrivileges=yes", "NoNewPrivileges=no"),
        ("CapabilityBoundingSet=\n", "CapabilityBoundingSet=CAP_SYS_ADMIN\n"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@system-service @mount"),
        ("DeviceAllow=char-nvidia* rw", "DeviceAllow=char-nvidia* rw\nDeviceAllow=/dev/sda rw"),
        (WRITABLE, WRITABLE + ' "/etc"'),
        (WRITABLE, WRITABLE.replace("/home", "")),
        (END, END.replace("=/usr", "=+/usr")),
        (END, END.replace("=/usr", "=-/usr")),
        (END, END.replace("worker-0", "worker-1")),
        *((COMMAND, f"ExecStart={value}") for value in COMMANDS),
    ],
)
def test_a_line_in_another_form_is_not_taken(line: str, other: str) -> None:
    assert UNIT.count(line) == 1
    assert not accepts(UNIT.replace(line, other))


@pytest.mark.parametrize("number", [n for n, line in enumerate(LINES) if "=" in line and line[:7] not in
    ("StartLi", "UnsetEn", "Restart", "Deadlin", "KillMod", "MemoryM", "MemoryS", "CPUQuot")])  # fmt: skip
def test_unit_without_one_of_its_lines_is_refused(number: int) -> None:
    assert not accepts("\n".join(LINES[:number] + LINES[number + 1 :]))


@given(st.sampled_from(HARMFUL) | st.text(min_size=1), st.integers(0, len(LINES)))
def test_unit_with_an_additional_line_is_refused(line: str, at: int) -> None:
    assume(line.strip("\n"))
    assert not accepts("\n".join([*LINES[:at], line, *LINES[at:]]))


@given(st.sampled_from(HARMFUL), st.sampled_from(BREAKS), st.data())
def test_unit_values_cannot_add_a_line(harm: str, end: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(UNIT)))
    assert not accepts(UNIT[:at] + end + harm + UNIT[at:])
    assert not accepts(UNIT[:at] + end + harm + end + UNIT[at:])


@given(
    st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=20),
        min_size=1,
    )
)
def test_unit_with_any_quoted_words_is_accepted(words: list[str]) -> None:
    assume(not any(127 <= ord(char) < 160 for word in words for char in word))
    unit = make_task(command=words, job="a", output="/srv/tfctl/a")["unit"]
    unitfile.check(unit, job="a", attempt=1, run="0123abcd", role="worker", index=0, output="/srv/tfctl/a")


def test_a_unit_with_the_deadline_of_earlier_versions_is_accepted() -> None:
    """Their restart files have it."""
    assert accepts(UNIT.replace("Deadline=43200\n", "").replace("KillMode=", "RuntimeMaxSec=43200\nKillMode="))


def test_unit_file_contains_its_ports_and_gpus() -> None:
    assert unitfile.facts(UNIT) == ("00000000", (2222, 2223), ("GPU-a",), 43200)


def test_refusal_of_a_unit_names_the_restriction_that_it_lacks() -> None:
    for line in ("NoNewPrivileges=yes", "DeviceAllow=char-infiniband* rw", "After=tfctl_nvidia.service"):
        with pytest.raises(unitfile.NotAllowed, match=re.escape(f"not those of 10-tfctl.conf: {line}")):
            unitfile.check(UNIT.replace(f"\n{line}\n", "\n"), **THIS)


def test_the_next_attempt_has_the_restrictions_of_this_version() -> None:
    """It may be made from a unit that another version has rendered."""
    of_attempt = {**THIS, "attempt": 4, "run": "11111111"}
    lines = [line for line in LINES if not line.startswith(("NoNewPrivileges", "DeviceAllow", "After"))]
    older = "\n".join(lines).replace("LimitCORE=0", "LimitCORE=infinity") + "\n"
    needed = {key: of_attempt[key] for key in ("job", "attempt", "run", "role", "index", "output")}
    for text in (UNIT, older):
        renewed = unitfile.renewed(text, **needed)
        unitfile.check(renewed, **of_attempt)
        assert sorted(renewed.splitlines()) == sorted(unitfile.renewed(UNIT, **needed).splitlines())


@pytest.mark.parametrize("dropped_in", [False, True])
def test_the_unit_is_hardened_with_and_without_the_drop_in(dropped_in: bool, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.fail("systemd-analyze is missing: install the package systemd")
    unit = tmp_path / names.unit("digits-ps", "worker", 0)
    unit.write_text(UNIT)
    if dropped_in:
        drop_ins = tmp_path / f"{unit.name}.d"
        drop_ins.mkdir()
        shutil.copy(DROP_IN, drop_ins)
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--json=short", "--no-pager", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    settings = {one["json_field"]: one["set"] for one in json.loads(done.stdout)}
    assert settings["UserOrDynamicUser"] is True
