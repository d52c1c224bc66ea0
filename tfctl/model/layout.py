"""Give every task of a job a host, from job file and inventory alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tfctl.errors import BadFile, located
from tfctl.model import pattern, placing, rules, stacks
from tfctl.model.fit import fit
from tfctl.model.host import Host, Inventory, check_variables
from tfctl.model.job import Layout
from tfctl.model.jobfile import JobFile, RoleSpec
from tfctl.model.stacks import Stack
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Counts, Strategy
from tfctl.model.task import Slot
from tfctl.model.text import PLACEHOLDER, near, require_roles
from tfctl.model.values import LOCAL, NO_OUTPUT
from tfctl.model.variables import ExternalVariables, by_role
from tfctl.wording import listed


def lay_out(
    job: JobFile,
    inventory: Inventory,
    place: str,
    known: Mapping[str, Stack] | None = None,
    outside: ExternalVariables = ExternalVariables(),  # noqa: B008
) -> Layout:
    """Check the roles against the strategy and give every task a host.

    Roles are placed in file order. Each role deals its replicas round-robin over its pattern's hosts, from the first.
    ``place`` names the job file in errors. ``known`` holds the stacks whose contents tfctl knows, by default those of
    the inventory. ``outside`` has the values of variables that the job file leaves to others. Raise BadFile.
    """
    check_variables(inventory)
    with located(place):
        strategy = _strategy(job)
        env = by_role(job, outside)
        slots = [slot for role, spec in job.roles.items() for slot in _slots(job, role, spec, env[role], inventory)]
        counts = Counter(slot.role for slot in slots)
        _check_counts(strategy, counts)
        placing.check(job, strategy, slots, outside)
        _check_placeholders(job)
        _check_folders(job, slots)
        known = stacks.load(inventory.stack_dirs) if known is None else known
        _check_requirements(job, slots, known)
        fitted, notes = fit(strategy, slots, known)
        used = {slot.host for slot in slots}
        return Layout(
            name=job.name,
            strategy=strategy,
            inventory=inventory.source,
            code=job.code.path,
            include=job.code.include,
            env_file=job.env_file,
            requirements=job.requirements,
            progress=job.progress.pattern if job.progress else None,
            progress_total=job.progress.total if job.progress else None,
            output=job.output_path,
            local=job.output == LOCAL,
            ports=job.ports,
            cloud=job.environment == "cloud",
            policy=job.policy,
            rules=rules.resolve(job.policy, strategy, counts),
            slots=tuple(fitted),
            notes=(*inventory.warnings, *_unmatched(job, inventory), *notes),
            others=tuple(host for host in inventory.hosts if host not in used),
        )


def _unmatched(job: JobFile, inventory: Inventory) -> Iterator[str]:
    for role, spec in job.roles.items():
        for part in pattern.unmatched(inventory, spec.hosts):
            yield f"roles/{role}/hosts: `{part}` matches no host of {inventory.source}"


def _strategy(job: JobFile) -> Strategy:
    found = STRATEGIES.get(job.strategy)
    if found is None:
        raise BadFile(f"strategy: {job.strategy!r} is not known; {near(job.strategy, list(STRATEGIES))}")
    for role in job.roles:
        if found.rule(role) is None:
            raise _no_such_role(role, found)
    if job.environment and not found.clustered:
        raise BadFile(f"environment: tasks of {found.name} have no TF_CONFIG", "remove `environment:`")
    if job.launcher and job.launcher not in found.launchers:
        raise BadFile(f"launcher: {found.name} has no launchers to choose from", "remove `launcher:`")
    if job.output == LOCAL and found.why_shared:
        fitting = [name for name, other in STRATEGIES.items() if not other.why_shared]
        raise BadFile(
            f"output: local: {found.name} needs one directory that all hosts share, because {found.why_shared}",
            f"set `output` to such a directory, or to none if the program saves in an object store; a directory on "
            f"each host is enough for {listed(fitting)}",
        )
    return found.launchers[job.launcher] if job.launcher else found


def _no_such_role(role: str, strategy: Strategy) -> BadFile:
    message = f"roles/{role}: {strategy.name} has no such role"
    if role == "master" and "chief" in strategy.roles:
        return BadFile(f"{message}: only tf.estimator has a master", "write `chief` instead of `master`")
    return BadFile(f"{message}; {near(role, list(strategy.roles))}")


def _slots(job: JobFile, role: str, spec: RoleSpec, env: Mapping[str, str], inventory: Inventory) -> Iterator[Slot]:
    with located(f"roles/{role}/hosts"):
        hosts = pattern.select(inventory, spec.hosts)
    for index, host in enumerate(_distributed(spec, hosts)):
        yield Slot(
            role=role,
            index=index,
            host=host,
            gpus=spec.gpus,
            command=spec.command or job.command,
            env=env,
            stack=spec.stack or job.stack or host.stack or stacks.NONE,
            memory=spec.limits.memory,
            cpus=spec.limits.cpus,
        )


def _distributed(spec: RoleSpec, hosts: tuple[Host, ...]) -> list[Host]:
    """Return the host of each of the role's tasks."""
    if spec.per_host is not None:
        return [host for host in hosts for _ in range(spec.per_host)]
    return [hosts[index % len(hosts)] for index in range(spec.replicas or 1)]


def _check_counts(strategy: Strategy, counts: Counts) -> None:
    for role, rule in strategy.roles.items():
        count = counts.get(role, 0)
        if count < rule.minimum:
            raise BadFile(f"roles: {strategy.name} needs a {role}: {rule.why}", f"add `{role}: {rule.minimum}`")
        if rule.maximum is not None and count > rule.maximum:
            raise BadFile(f"roles/{role}: {strategy.name} has at most {rule.maximum}, not {count}")
    refused = strategy.refuse(counts)
    if refused:
        raise BadFile(f"roles: {refused.message}", refused.remedy)


def _check_placeholders(job: JobFile) -> None:
    """Check the placeholders that depend on other keys: the hosts of roles, and the output."""
    texts = {"command": [*job.command], "env": _texts(job.env)}
    for role, spec in job.roles.items():
        texts |= {f"roles/{role}/command": [*(spec.command or ())], f"roles/{role}/env": _texts(spec.env)}
    texts["policy/notify/command"] = [*((job.policy.notify and job.policy.notify.command) or ())]
    for place, words in texts.items():
        try:
            for word in words:
                require_roles(word, job.roles)
        except ValueError as error:
            raise BadFile(f"{place}: {error}") from None
        if job.output == NO_OUTPUT and "output" in PLACEHOLDER.findall(" ".join(words)):
            raise BadFile(
                f"{place}: {{output}} is the directory of the job, and with `output: none` it has none",
                "write the URL or the path instead, or set `output` to a directory",
            )


def _texts(env: Mapping[str, str | None]) -> list[str]:
    return [value for value in env.values() if value is not None]


def _check_folders(job: JobFile, slots: Iterable[Slot]) -> None:
    """Check that the code exists on this machine, and that the hosts allow the output directory."""
    if not job.code.path.is_dir():
        raise BadFile(f"code: {job.code.path} is not a directory")
    if not job.output_path:
        return
    for host in dict.fromkeys(slot.host for slot in slots):
        if not any(job.output_path.startswith(root.rstrip("/") + "/") for root in host.output_roots):
            raise BadFile(
                f"output: {job.output_path} is not below a directory in which {host.name} lets jobs write "
                f"(tfctl_output_roots: {', '.join(host.output_roots)})",
                "choose another `output`, or add its directory to tfctl_output_roots and run tfctl provision INVENTORY",
            )


def _check_requirements(job: JobFile, slots: Iterable[Slot], known: Mapping[str, Stack]) -> None:
    if job.requirements is None:
        return
    if not job.requirements.is_file():
        raise BadFile(f"requirements: {job.requirements} is not a file")
    for stack in dict.fromkeys(slot.stack for slot in slots):
        if stack not in known:
            raise BadFile(
                f"requirements: they are resolved for a stack, and {stack} is not a stack of tfctl",
                f"set `stack:` to one of {', '.join(known)}",
            )
