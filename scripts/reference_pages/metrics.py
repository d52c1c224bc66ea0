"""The page about metrics, from tfctl.jobs.prometheus.METRICS."""

from __future__ import annotations

from typing import get_args

from scripts.reference_pages.markdown import code, paragraphs, sentence, table
from tfctl.jobs.prometheus import FIGURES, METRICS, RECENT_S
from tfctl.node import wire


def page() -> str:
    rows = [[code(each.name), each.kind, ", ".join(map(code, each.labels)), sentence(each.help)] for each in METRICS]
    return paragraphs(
        "# Metrics",
        "[`tfctl metrics`](commands.md#tfctl-metrics) exports these metrics for Prometheus "
        "([how to use them](../howto/monitoring.md)). A value that is not known is left out.",
        table(["metric", "type", "labels", "meaning"], rows),
        f"The values of `state` are {_listed(wire.JobStateName)} for a job, and {_listed(wire.TaskStateName)} for a "
        "task. Each has a series of its own, which is 1 for the present state and 0 for the others. Those of "
        "`tfctl_host_gpus` are `free`, `held`, `defective` and `missing`; their sum is the number of the host's GPUs.",
        f"A job that is over is reported for {RECENT_S / 3600:.0f} hours. Once all of its hosts have cleaned up, its "
        "tasks and its progress are left out.",
        "`host` is the name of the inventory. `gpu` is the UUID of a GPU. `figure` is the loss, or the name "
        "of another number in the lines from which tfctl reads the [progress](../job-file.md#progress): at most "
        f"{FIGURES} for each job. No label contains the attempt or the run, so a job that is started again continues "
        "its series.",
    )


def _listed(names: object) -> str:
    return ", ".join(map(code, get_args(names)))
