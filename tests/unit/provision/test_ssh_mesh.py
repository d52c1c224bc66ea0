"""The role ssh_mesh, as far as it works without a host: the lines that it writes, and those that it keeps."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.unit.provision.role_play import ROLES, check, facts, play, tasks_of


def test_ssh_mesh_keeps_its_own_lines_of_absent_hosts_and_copies_no_key_of_the_user(tmp_path: Path) -> None:
    known = "b,10.0.0.2 ssh-ed25519 AAAA b\n"
    own = 'restrict,from="10.0.0.2" ssh-ed25519 BBBB tfctl b'
    accepted = f"ssh-rsa CCCC b\n# BEGIN tfctl ssh_mesh\n{own}\n{own}\nssh-rsa CCCC b\n# END tfctl ssh_mesh\n"
    read = {"results": [{"content": base64.b64encode(text.encode()).decode()} for text in (known, accepted)]}
    skipped = {"results": [{"skipped": True}, {"skipped": True}]}
    present = {**facts(ssh_mesh_public_key={"stdout": "ssh-ed25519 DDDD"}), "when": "inventory_hostname == 'a'"}
    play(tmp_path, "ssh_mesh", [
        present,
        check("ssh_mesh_absent == ['b']"),
        check(f"ssh_mesh_earlier_lines == [[{known.strip()!r}], [{own!r}]]", ssh_mesh_earlier=read),
        check("ssh_mesh_earlier_lines == [[], []]", ssh_mesh_earlier=skipped),
    ], hosts="a,b")  # fmt: skip


@pytest.mark.extended
def test_ssh_mesh_writes_its_lines_in_one_order_whichever_hosts_take_part(tmp_path: Path) -> None:
    """Without a in the run, b takes the lines of a from its files."""
    (tmp_path / "templates").symlink_to(ROLES / "ssh_mesh/templates")
    own = facts(
        ssh_mesh_public_key={"stdout": "ssh-ed25519 AAAA"}, all_ipv4_addresses=["10.0.0.1"], all_ipv6_addresses=[],
        ssh_host_key_ed25519_public="BBBB", ssh_host_key_ed25519_public_keytype="ssh-ed25519",
    )  # fmt: skip
    read, *write = tasks_of("ssh_mesh", "hosts.yml")[:3]
    read["loop"] = [f"{tmp_path}/{{{{ inventory_hostname }}}}-{number}" for number in range(len(write))]
    for task, path in zip(write, read["loop"], strict=True):
        task["ansible.builtin.blockinfile"]["path"] = path
    for words, changed in (((), 2), (("--limit", "b"), 0)):
        output = play(tmp_path, "ssh_mesh", [own, read, *write], *words, hosts="a,b")
        assert re.search(rf"^b .*changed={changed} ", output, re.MULTILINE), output
    assert (tmp_path / "b-0").read_text().splitlines()[1:-1] == ["a ssh-ed25519 BBBB a", "b ssh-ed25519 BBBB b"]


@pytest.mark.extended
def test_ssh_mesh_does_not_fail_in_check_mode_when_no_host_has_a_key(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROLES / "ssh_mesh/templates")
    _, *write = tasks_of("ssh_mesh", "hosts.yml")[:3]
    for number, task in enumerate(write):
        task["ansible.builtin.blockinfile"]["path"] = str(tmp_path / f"file-{number}")
    output = play(tmp_path, "ssh_mesh", [facts(ssh_mesh_public_key={"stdout": ""}), *write], "--check")
    assert "failed=0" in output, output
