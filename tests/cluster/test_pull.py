"""`tfctl pull`: what is copied from the hosts, how it continues, and what a host cannot do to this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Hosts

#: Prints a line, and ends.
BRIEF = "command: [sh, -c, 'echo line of {index}']\nroles: {worker: 2}\n"

ALONE = "command: [sh, -c, 'exit 0']\nroles: {worker: 1}\n"


def put(hosts: Hosts, host: str, job: str, **files: str) -> Path:
    """Write files to the job's output on a host, and return that directory. ``__`` in a name stands for a slash."""
    folder = hosts.trees[host] / f"srv/tfctl/{job}"
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ended(hosts: Hosts, job: str, text: str = BRIEF) -> None:
    hosts.ok("start", hosts.file(job, text), "--wait")


def test_pull_copies_output_logs_units_and_events(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "whole", BRIEF + "env: {TOKEN: very-secret}\n")
    put(hosts, "node1", "whole", model="weights", logs__train__events="curve")
    put(hosts, "node2", "whole", model="other weights")
    done = hosts("pull", "whole", tmp_path / "got")
    assert (done.code, done.out) == (0, f"{tmp_path}/got\n"), done
    assert done.err == "whole: 3 files of output, 25 B\n"
    found = {str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*") if path.is_file()}
    assert found - {".tfctl-pull/lock", ".tfctl-pull/written", ".gitignore"} == {
        "events.json", "status.json", "output/node1/model", "output/node1/logs/train/events", "output/node2/model",
        *(f"attempt-1/worker-{n}.{suffix}" for n in (0, 1) for suffix in ("log", "service", "tf_config.json")),
    }  # fmt: skip
    assert (tmp_path / "got/output/node2/model").read_text() == "other weights"
    assert (tmp_path / "got/attempt-1/worker-1.log").read_text() == "line of 1\n"
    config = json.loads((tmp_path / "got/attempt-1/worker-1.tf_config.json").read_text())
    assert config["task"] == {"type": "worker", "index": 1}
    assert json.loads((tmp_path / "got/events.json").read_text())["events"][0]["event"] == "start"
    assert json.loads((tmp_path / "got/status.json").read_text())["state"] == "succeeded"
    everything = b"".join(path.read_bytes() for path in (tmp_path / "got").rglob("*") if path.is_file())
    assert b"very-secret" not in everything


def test_pull_has_the_logs_of_each_attempt(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "again", "command: [sh, -c, 'echo attempt $TFCTL_ATTEMPT']\nroles: {worker: 1}\n")
    hosts.ok("restart", "again", "--wait")
    assert hosts("pull", "again", tmp_path).code == 0
    logs = [(tmp_path / f"attempt-{number}/worker-0.log").read_text() for number in (1, 2)]
    assert logs == ["attempt 1\n", "attempt 2\n"]


def test_pull_continues_where_an_earlier_one_ended(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "large")
    first = put(hosts, "node1", "large", small="done", big="x" * 2_999_999 + "\n") / "big"
    with hosts.stalled(["node1"], "node", "ended") as reached, hosts.begin("pull", "large", tmp_path) as client:
        wait_until(reached)
        parts = tmp_path / ".tfctl-pull"
        wait_until(lambda: any(path.stat().st_size > 2_000_000 for path in parts.iterdir()))
        client.process.send_signal(2)
        assert client.done().code == 130
    assert "run the same command again to continue" in client.err
    assert not (tmp_path / "output/node1/big").exists()
    [part] = [path for path in parts.iterdir() if path.stat().st_size > 2_000_000]
    # What has been received is not read again: only the rest of the file differs from what was there.
    marked = b"y" * 1000 + part.read_bytes()[1000:]
    part.write_bytes(marked)
    done = hosts("pull", "large", tmp_path)
    assert done.code == 0, done
    assert (tmp_path / "output/node1/big").read_bytes() == b"y" * 1000 + b"x" * 2_998_999 + b"\n"
    assert (tmp_path / "output/node1/big").stat().st_mtime_ns == first.stat().st_mtime_ns
    assert {path.name for path in parts.iterdir()} == {"lock", "written"}

    assert "0 files of output, 0 B; 2 were there already" in hosts("pull", "large", tmp_path).err
    first.write_text("z" * 3_000_000)
    assert "1 file of output, 3.0 MB; 1 was there already" in hosts("pull", "large", tmp_path).err
    assert (tmp_path / "output/node1/big").read_bytes() == b"z" * 3_000_000


def contents(folder: Path) -> dict[str, bytes]:
    """Return what each file of a directory contains that is not tfctl's own."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".tfctl-pull" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_pull_replaces_nothing_that_an_earlier_run_of_the_same_attempt_has_left(hosts: Hosts, tmp_path: Path) -> None:
    """After `prune`, attempts begin at 1 again: what was pulled is the only copy."""
    ended(hosts, "twice", BRIEF.replace("line of", "first line of"))
    put(hosts, "node1", "twice", model="first weights")
    hosts.ok("pull", "twice", tmp_path)
    first = contents(tmp_path)
    hosts.ok("prune", "twice", "--yes")
    ended(hosts, "twice", BRIEF)
    put(hosts, "node1", "twice", model="other weights", more="more")
    run = hosts.status("twice")["run"]
    for expected in ("2 files of output", "0 files of output, 0 B; 2 were there already"):
        done = hosts("pull", "twice", tmp_path, "-o", "json")
        assert (done.code, done.objects[0]["output"]) == (0, f"{tmp_path}/output-{run}")
        assert f"has the results of other runs of twice too: those of this one are in output-{run}\n" in done.err
        assert expected in done.err
    found = contents(tmp_path)
    assert {name: found[name] for name in first} == first
    assert {name: found[name] for name in found if name not in first and not name.endswith((".service", ".json"))} == {
        f"attempt-1-{run}/worker-0.log": b"line of 0\n",
        f"attempt-1-{run}/worker-1.log": b"line of 1\n",
        f"output-{run}/node1/model": b"other weights",
        f"output-{run}/node1/more": b"more",
    }
    assert json.loads(found[f"status-{run}.json"])["run"] == run
    assert b"first line" not in b"".join(found[name] for name in found if run in name)
    hosts.ok("restart", "twice", "--wait")
    done = hosts("pull", "twice", tmp_path)
    assert (done.code, f"those of this one are in output-{run}\n" in done.err) == (0, True), done
    assert contents(tmp_path)["attempt-2/worker-0.log"] == b"line of 0\n"


def test_pull_continues_a_copy_beside_that_of_an_earlier_run(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "large")
    put(hosts, "node1", "large", big="x" * 2_999_999 + "\n")
    hosts.ok("pull", "large", tmp_path)
    hosts.ok("prune", "large", "--yes")
    ended(hosts, "large")
    put(hosts, "node1", "large", big="y" * 2_999_999 + "\n")
    with hosts.stalled(["node1"], "node", "ended") as reached, hosts.begin("pull", "large", tmp_path) as client:
        wait_until(reached)
        parts = tmp_path / ".tfctl-pull"
        wait_until(lambda: any(path.stat().st_size > 2_000_000 for path in parts.iterdir()))
        client.process.send_signal(2)
        assert client.done().code == 130
    [part] = [path for path in parts.iterdir() if path.stat().st_size > 2_000_000]
    part.write_bytes(b"z" * 1000 + part.read_bytes()[1000:])
    hosts.ok("pull", "large", tmp_path)
    [copy] = tmp_path.glob("output-*/node1/big")
    assert copy.read_bytes() == b"z" * 1000 + b"y" * 2_998_999 + b"\n"
    assert (tmp_path / "output/node1/big").read_bytes() == b"x" * 2_999_999 + b"\n"


def test_pull_takes_nothing_of_a_run_that_has_begun_meanwhile(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "brief", ALONE)
    with hosts.delayed("node1", "pull") as (waits, release), hosts.begin("pull", "brief", tmp_path) as client:
        wait_until(waits)
        hosts.heal("node1")
        hosts.ok("prune", "brief", "--yes")
        ended(hosts, "brief", ALONE)
        put(hosts, "node1", "brief", model="of another run")
        release()
        done = client.done()
    assert (done.code, "node1: " in done.err and "has no attempt of job brief" in done.err) == (7, True), done
    assert not [name for name in contents(tmp_path) if name.endswith((".service", "model"))]


def test_pull_refuses_a_directory_of_the_user_that_has_one_of_its_names(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "named")
    (tmp_path / "output").mkdir()
    (tmp_path / "output/model.h5").write_text("mine")
    done = hosts("pull", "named", tmp_path, "-o", "json")
    said = f"{tmp_path}/output was not written by `tfctl pull named`, which would write there"
    remedy = "name a new directory: tfctl pull named ./DIR"
    assert (done.code, done.objects) == (2, [{"error": {"exit": 2, "message": said, "remedy": remedy}}])
    assert contents(tmp_path) == {"output/model.h5": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_pull_leaves_out_a_file_in_the_place_of_one_of_the_user(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "mixed")
    put(hosts, "node1", "mixed", model="weights")
    hosts.ok("pull", "mixed", tmp_path)
    (tmp_path / "output/node1/notes").write_text("mine")
    (tmp_path / "attempt-1/worker-0.timings.jsonl").write_text("mine")
    put(hosts, "node1", "mixed", notes="of the job", model="better weights")
    done = hosts("pull", "mixed", tmp_path)
    said = f"node1: {tmp_path}/output/node1/notes was not written by `tfctl pull`; it was left as it is"
    assert (done.code, said in done.err) == (1, True), done
    assert (tmp_path / "output/node1/notes").read_text() == "mine"
    assert (tmp_path / "output/node1/model").read_text() == "better weights"


def test_pull_names_what_it_leaves_out(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "odd")
    folder = put(hosts, "node1", "odd", good="yes", inner__file="yes")
    os.mkfifo(folder / "pipe")
    (folder / "inner/up").symlink_to("../good")
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "further").symlink_to("inner/../../../..")
    done = hosts("pull", "odd", tmp_path)
    assert done.code == 1
    assert "node1: pipe: it is neither a file nor a link; it was left out" in done.err
    for name, target in (("out", "/etc/passwd"), ("further", "inner/../../../..")):
        assert f"output/node1/{name} is a link to {target}, which is outside" in done.err
    assert (tmp_path / "output/node1/inner/up").read_text() == "yes"
    assert not (tmp_path / "output/node1/out").is_symlink()


def test_pull_says_how_to_make_place_for_a_file(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "blocked")
    hosts.ok("pull", "blocked", tmp_path)
    put(hosts, "node1", "blocked", model="weights")
    (tmp_path / "output/node1/model").mkdir(parents=True)
    done = hosts("pull", "blocked", tmp_path)
    message = f"node1: cannot write {tmp_path}/output/node1/model: Is a directory"
    assert (done.code, f"{message}\n  → free some space, or move the file" in done.err) == (1, True), done
    assert hosts("pull", "blocked", tmp_path, "-o", "json").objects[0]["faults"] == [message]


@pytest.mark.parametrize("path", ["../escaped", "{tmp}/escaped", "a/../../escaped", "", "a//b", ".", "nul\0"])
def test_a_host_cannot_write_outside_the_directory(hosts: Hosts, path: str, tmp_path: Path) -> None:
    ended(hosts, "evil", ALONE)
    one = {"size": 4, "seconds": 1, "nanoseconds": 1}
    hosts.lie("node1", {"path": path.format(tmp=tmp_path), **one}, {"path": "fine", **one})
    inside = tmp_path / "deep/er"
    done = hosts("pull", "evil", inside)
    assert done.code == 1
    assert "is not a path below the directory; it was left out" in done.err
    assert (inside / "output/fine").read_bytes() == b"evil"
    assert list(tmp_path.rglob("escaped")) == []


def test_a_host_cannot_write_through_a_link(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "evil", ALONE)
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    one = {"size": 4, "seconds": 1, "nanoseconds": 1}
    hosts.lie("node1", {"path": "fine", **one})
    hosts.ok("pull", "evil", inside)
    (inside / "output/way").symlink_to(outside)
    (inside / "output/fine").unlink()
    (inside / "output/fine").symlink_to(outside / "fine")
    hosts.lie("node1", {"path": "way/escaped", **one}, {"path": "fine", **one})
    done = hosts("pull", "evil", inside)
    assert done.code == 1
    assert f"cannot write {inside}/output/way/escaped" in done.err
    assert list(outside.iterdir()) == []
    assert not (inside / "output/fine").is_symlink()


@pytest.mark.parametrize("number", [{"size": -4}, {"seconds": 10**14}, {"nanoseconds": -1}])
def test_a_host_cannot_confuse_pull_with_impossible_numbers(
    hosts: Hosts, number: dict[str, int], tmp_path: Path
) -> None:
    ended(hosts, "evil", ALONE)
    hosts.lie("node1", {"path": "fine", "size": 4, "seconds": 1, "nanoseconds": 1, **number})
    done = hosts("pull", "evil", tmp_path)
    assert (done.code, "its size or modification time is invalid" in done.err) == (1, True), done


def test_a_host_cannot_send_more_than_it_has_listed(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "evil", ALONE)
    hosts.lie("node1", {"path": "fine", "size": 3, "seconds": 1, "nanoseconds": 1})
    done = hosts("pull", "evil", tmp_path)
    assert (done.code, "sent more data for 'fine' than its size" in done.err) == (1, True), done


def test_pull_without_a_directory_writes_beside_the_caller(hosts: Hosts) -> None:
    ended(hosts, "plain")
    done = hosts("pull")
    assert (done.code, done.out) == (0, "plain-results\n")
    assert (hosts.folder / "plain-results/attempt-1/worker-0.log").exists()


@pytest.mark.extended
def test_pull_distinguishes_a_job_from_a_directory(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "named")
    assert hosts("pull", f"{tmp_path}/there").out == f"{tmp_path}/there\n"
    assert hosts("pull", "-j", "named", tmp_path / "other").out == f"{tmp_path}/other\n"
    done = hosts("pull", "elsewhere")
    assert (done.code, done.out) == (7, "")
    assert "for the directory elsewhere, write ./elsewhere" in done.err
    assert hosts("pull", "named", "one", "two").code == 2


def test_two_pulls_do_not_write_to_one_directory(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "both")
    put(hosts, "node1", "both", big="x" * 300_000 + "\n")
    with hosts.stalled(["node1"], "node", "ended") as reached, hosts.begin("pull", "both", tmp_path):
        wait_until(reached)
        done = hosts("pull", "both", tmp_path)
    assert done.code == 5
    assert f"another pull writes to {tmp_path}" in done.err


def test_pull_reports_a_host_that_does_not_answer_and_copies_the_rest(hosts: Hosts, tmp_path: Path) -> None:
    ended(hosts, "half")
    put(hosts, "node1", "half", model="weights")
    hosts.refuse("node2", "exit 127")
    done = hosts("pull", "half", tmp_path, "-o", "json")
    assert done.code == 8
    assert done.objects[0]["files"] == 1
    assert any(fault.startswith("node2: ") for fault in done.objects[0]["faults"])
    assert (tmp_path / "output/node1/model").read_text() == "weights"
