"""The record of a job names all of its tasks. A host is asked for it only if the client does not know it."""

from __future__ import annotations

import json
import os

import pytest
from node_tree import Tree, answers
from records import make_record

from tfctl.node import jobstore, names, wire
from tfctl.node.system import System


def store(tree: Tree, job: str, tasks: int) -> wire.Record:
    """Write the record of a job whose first task is here."""
    record = make_record([("worker", index, f"node{index:04}") for index in range(tasks)], job=job)
    (tree / names.attempt_dir(job, 1) / "worker-0").mkdir(parents=True)
    (tree / names.record_file(job, 1)).write_text(json.dumps(wire.encode(record), separators=(",", ":")))
    return record


def shown(tree: Tree, request: wire.Request) -> wire.Shown:
    [found] = answers(tree, request)
    assert isinstance(found, wire.Shown)
    return found


def test_a_record_is_on_the_disk_before_it_has_its_name_and_then_the_name_too(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tree / names.record_file("digits", 1)
    file.parent.mkdir(parents=True)
    written: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda one: written.append((os.fstat(one).st_size, file.exists())))
    jobstore.write_record(System(prefix=str(tree.path)), make_record())
    assert written[0] == (file.stat().st_size, False)
    assert [exists for _, exists in written] == [False, True]


def test_a_record_is_decoded_again_only_when_its_file_has_changed(tree: Tree) -> None:
    system, record = System(prefix=str(tree.path)), store(tree, "digits", 3)
    found = jobstore.record(system, "digits", 1)
    assert found == record
    assert jobstore.record(system, "digits", 1) is found
    jobstore.write_record(system, record._replace(run="89abcdef"))
    assert jobstore.record(system, "digits", 1) == record._replace(run="89abcdef")
    (tree / names.record_file("digits", 1)).write_text("{}")
    assert jobstore.record(system, "digits", 1) is None
    (tree / names.record_file("digits", 1)).unlink()
    assert jobstore.record(system, "digits", 1) is None


def test_a_brief_answer_does_not_grow_with_the_number_of_tasks(tree: Tree) -> None:
    sizes = []
    for tasks in (100, 1000):
        store(tree, job := f"tasks{tasks:04}", tasks)
        sizes.append(len(wire.line(shown(tree, wire.ShowRequest(job, brief=True))._replace(time=1.0))))
    assert sizes[0] == sizes[1] < 500


def test_a_brief_status_becomes_the_whole_one_with_its_record(tree: Tree) -> None:
    record = store(tree, "large", 100)
    [brief] = shown(tree, wire.ShowRequest("large", brief=True)).brief
    assert shown(tree, wire.ShowRequest("large")).jobs == (brief.whole(record),)


def test_a_short_record_is_sent_at_once(tree: Tree) -> None:
    store(tree, "small", 4)
    found = shown(tree, wire.ShowRequest("small", brief=True))
    assert (len(found.jobs), found.brief) == (1, ())


def test_all_jobs_are_shown_with_the_same_digest_as_one(tree: Tree) -> None:
    store(tree, "large", 100)
    [of_one] = shown(tree, wire.ShowRequest("large", brief=True)).brief
    [of_all] = shown(tree, wire.ShowRequest(jobs=("large",), brief=True)).brief
    assert of_one == of_all
