"""What `tfctl preflight` and `tfctl provision` print with -o json."""

from __future__ import annotations

from tfctl.cli import preflight, provision
from tfctl.provision.results import HostResult, PlayResult

SHARED = "the hosts share no directory of tfctl_output_roots"


def test_json_of_preflight_and_provision_contains_the_warnings_about_each_host() -> None:
    warned = HostResult("a", drifts=("/etc/x changed",), warnings=(SHARED,))
    assert preflight.as_object(warned)["warnings"] == [SHARED]
    (host,) = provision.as_object(PlayResult((warned,)), check=True)["hosts"]
    assert (host["warnings"], host["drifts"]) == ([SHARED], ["/etc/x changed"])


def test_json_of_provision_contains_the_warnings_about_the_run() -> None:
    report = provision.as_object(PlayResult((HostResult("a"),), ("the canary: all its hosts failed",)), check=False)
    assert (report["warnings"], report["hosts"][0]["warnings"]) == (["the canary: all its hosts failed"], [])
