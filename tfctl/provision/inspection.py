"""Decide what hosts get from their facts: what the actions decide and compare_hosts do without Ansible.

Ansible's plugins import this module: standard library and PyYAML only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tfctl import schema
from tfctl.errors import BadFile, TfctlError
from tfctl.model import stacks as catalogue
from tfctl.model.addresses import parsed
from tfctl.model.host import local_paths
from tfctl.provision import uv_pythons
from tfctl.provision.control import cache
from tfctl.provision.decide import pythons
from tfctl.provision.decide.comparison import ComparedHost, compare, compared
from tfctl.provision.decide.decision import Decision
from tfctl.provision.decide.explain import explain
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import fault
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.space import directories
from tfctl.provision.decide.wanted import ALL, Preferences, Wanted
from tfctl.provision.faults import ModuleFault
from tfctl.provision.order import order
from tfctl.provision.python_tree import pack

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack
    from tfctl.provision.explanation import Explanation
    from tfctl.provision.requirements import LockedPackages

#: How the inventory may write booleans, as Ansible reads them.
_YES = {"y", "yes", "on", "1", "true", "t"}
_NO = {"n", "no", "off", "0", "false", "f"}


@dataclass(frozen=True)
class HostSettings:
    """What the inventory says about a host; roles/preflight documents each setting.

    ``uid``: UID and GID of the job user and its group. ``shared``: directories that jobs write to. ``pythons``:
    interpreters on the host that stacks may use. ``trees``: CPython trees of this machine, to send to hosts.
    ``address``: where the other hosts reach this one. ``time_sync``: whether provisioning will synchronize the clock.
    ``ports``: those of jobs, such as 2222-2299. ``shared_storage``: how provisioning mounts or checks a shared
    directory. ``requirements``: requirements files of jobs. ``index_url``: the package index for them, in place of that
    of pip's settings. ``python_mirror``: where uv gets CPythons, see `uv_pythons.offered`. ``explain``: return what
    each stack would be here, and no fault.
    """

    uid: int
    shared: tuple[str, ...]
    operators: tuple[str, ...] = ()
    stack: str = ""
    stack_dirs: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    address: str = ""
    time_sync: bool = False
    ports: str = ""
    shared_storage: str = ""
    requirements: tuple[str, ...] = ()
    index_url: str = ""
    python_mirror: str = ""
    explain: bool = False
    preferences: Preferences = field(default_factory=Preferences)


#: How many hosts look up the name of another one.
_PEERS = 3
#: The types of Ansible's arguments, by the annotations of HostSettings and Preferences.
_TYPES: dict[str, dict[str, Any]] = {
    "int": {"type": "int"},
    "bool": {"type": "bool"},
    "str": {"type": "str"},
    "tuple[str, ...]": {"type": "list", "elements": "str"},
}
#: The variables of the inventory that are not named like the settings.
_VARIABLES = {"shared": "output_roots", "trees": "python_trees"}


def _arguments_of(settings: type[HostSettings | Preferences]) -> dict[str, dict[str, Any]]:
    """Return the specification of the arguments that a dataclass has as fields. One without a default is required."""
    found = {each.name: each for each in fields(settings) if str(each.type) in _TYPES}
    return {name: {**_TYPES[str(each.type)], "required": each.default is MISSING} for name, each in found.items()}


#: The specification of the arguments of the action.
ARGUMENTS = {**_arguments_of(HostSettings), "preferences": {"type": "dict", "options": _arguments_of(Preferences)}}
for _url in ("index_url", "python_mirror"):
    ARGUMENTS[_url]["no_log"] = True  # it may contain a password


def with_variables(text: str) -> str:
    """Return what Ansible says about the arguments, with the names of the inventory's variables."""
    named = re.sub(r"(?<=argument ')\w+", lambda name: f"tfctl_{_VARIABLES.get(name[0], name[0])}", text)
    return named.replace(" found in 'preferences'.", "")


class InspectionResult(TypedDict, total=False):
    """What Ansible gets. ``faults``: what prevents provisioning; without any, the ``decision`` (Decision).
    ``compared``: for compare_hosts (ComparedHost). ``requirements``: what the role of this name installs.
    ``explained``: if that was asked for."""

    faults: list[ModuleFault]
    decision: schema.Plain
    compared: schema.Plain
    requirements: list[LockedPackages]
    notices: tuple[str, ...]
    explained: Explanation[ModuleFault]


class Inspection:
    """The inspection of a host. ``base``: where relative paths of the inventory begin. ``remote_tmp``: where Ansible
    keeps its temporary files on the host. Raises TfctlError for a tree, a stack or a key that cannot be used."""

    def __init__(self, settings: HostSettings, base: Path, remote_tmp: str) -> None:
        self._settings, self._base = settings, base
        mirror = settings.python_mirror.strip()
        self._mirror = mirror if "://" in mirror else "".join(local_paths([mirror], base))
        # An ini inventory gives one text; commas may have spaces behind them.
        shared = tuple(path.strip() for path in settings.shared)
        self._wanted = Wanted(
            uid=settings.uid,
            shared=shared,
            operators=tuple(name.strip() for name in settings.operators),
            stack=settings.stack,
            preferences=_with_key_file(settings.preferences, base),
            trees=tuple(pack(Path(tree), cache() / "pythons") for tree in settings.trees),
            remote_tmp=remote_tmp,
            stacks=catalogue.load(local_paths(settings.stack_dirs, base)),
        )

    def questions(self, peers: Sequence[str] = ()) -> dict[str, object]:
        """Return the arguments of the module facts. ``peers``: names of other hosts."""
        return {
            "uid": self._wanted.uid,
            "directories": directories(self._wanted.shared, self._wanted.remote_tmp),
            "address": self._settings.address,
            "peers": [*peers],
            "pythons": [path.strip() for path in self._settings.pythons],
            "libraries": sorted({library for tree in self._wanted.trees for library in tree.needs}),
        }

    def decide(self, facts: Facts, sent: float, received: float, write: bool) -> InspectionResult:
        """Return the decision or the faults. ``sent``, ``received``: the times of this machine between which the facts
        were gathered. ``write``: whether lock files of requirements may be written."""
        settings, wanted = self._settings, self._wanted
        if settings.explain or pythons.needs_uv(facts, wanted):
            try:
                wanted = replace(wanted, builds=uv_pythons.offered(self._mirror))
            except BadFile as error:
                return {"faults": [refused(error)]}
            except TfctlError as error:
                wanted = replace(wanted, no_builds=error.message)
        if settings.explain:
            return {"explained": explain(facts, wanted)}
        roots = () if settings.shared_storage else wanted.shared
        known = compared(facts, settings.address, sent, received, settings.time_sync, settings.ports, roots)
        result: InspectionResult = {"compared": schema.plain(known)}
        decision, faults = decide(facts, wanted)
        if faults:
            return {**result, "faults": faults}
        try:
            decision = self._with_python(decision, wanted)
        except TfctlError as error:
            return {**result, "faults": [fault(error.message, error.remedy)]}
        try:
            found = self._packages(decision, facts.machine, write)
        except TfctlError as error:
            return {**result, "faults": [refused(error)]}
        return {**result, "decision": schema.plain(decision), "requirements": found, "notices": decision.notices}

    def _with_python(self, decision: Decision, wanted: Wanted) -> Decision:
        """Return the decision with the archive of the CPython that uv gets for the host. Raises TfctlError."""
        stack = decision.stack
        tree = stack.python.tree if stack else None
        if stack is None or tree is None or not tree.key:
            return decision
        build = next(each for each in wanted.builds if each.name == tree.name)
        found = uv_pythons.archive(build, self._mirror, cache() / "pythons")
        python = replace(stack.python, tree=replace(tree, archive=str(found.path), sha256=found.sha256))
        return replace(decision, stack=replace(stack, python=python))

    def _packages(self, decision: Decision, machine: str, write: bool) -> list[LockedPackages]:
        """Return what the role requirements installs. Raises TfctlError."""
        files = [Path(file) for file in local_paths(self._settings.requirements, self._base)]
        if not files:
            return []
        from tfctl.provision.requirements import packages  # needs packaging, which only this case imports

        if decision.stack is None:
            message = f"{files[0]}: packages are resolved for a stack, and this host has none"
            raise TfctlError(message, "set tfctl_stack for it")
        stack: Stack = self._wanted.stacks[decision.stack.name]
        return [packages(file, stack, decision.stack, machine, write, self._settings.index_url) for file in files]


def peers(variables: Mapping[str, Any]) -> list[str]:
    """Return where other hosts of the play are reached, as far as the inventory gives a name for that. ``variables``:
    Ansible's, of a task. Of many hosts, the next ones count: each name is looked up on as many hosts."""
    hosts = list(variables.get("ansible_play_hosts_all") or ())
    own = hosts.index(variables["inventory_hostname"]) if hosts else 0
    found = [variables["hostvars"][host] for host in (hosts[own + 1 :] + hosts[:own])[:_PEERS]]
    names = [_given(known, "tfctl_address") or _given(known, "ansible_host") for known in found]
    return [name for name in dict.fromkeys(names) if name and parsed(name) is None]


def _given(known: Mapping[str, Any], name: str) -> str:
    """Return a variable of another host, or "": if its template cannot be evaluated, that host reports it."""
    try:
        return str(known.get(name) or "")
    except Exception:
        return ""


def compared_hosts(
    found: Mapping[str, schema.Plain | None], others: bool, canary: object, batch: object
) -> dict[str, object]:
    """Return the result of the action compare_hosts. ``found``: what each host of the play has as ``compared``;
    None if preflight has found nothing but an error of the inventory, so that the host is not compared. ``others``: see
    `compare`. ``canary``, ``batch``: the inventory's values, see `order`."""
    try:
        batches = order(canary, batch)
    except ValueError as error:
        wrong = fault(str(error), "correct it in the inventory", "inventory")
        return {"faults_by_host": {host: [wrong] for host in found}}
    known = {host: schema.parse(ComparedHost, each) for host, each in found.items() if each}
    comparison = compare(known, others=others)
    return {"faults_by_host": comparison.faults, "warnings": comparison.warnings, "order": schema.plain(batches)}


def _with_key_file(preferences: Preferences, base: Path) -> Preferences:
    """Return the settings with the absolute path of the key file. Raises TfctlError if apt and dnf would not read it.

    Which keys it contains is the user's decision.
    """
    for path in local_paths([preferences.nvidia_key_file], base):
        variable = f"tfctl_nvidia_key_file {path}"
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise TfctlError(f"{variable}: {error.strerror}", "give a file of this machine that you can read") from None
        if b"-----BEGIN PGP PUBLIC KEY BLOCK-----" not in content or b"PRIVATE KEY BLOCK" in content:
            message = f"{variable} is not an ASCII-armored public key"
            raise TfctlError(message, "write it with `gpg --armor --export KEY > FILE`")
        return replace(preferences, nvidia_key_file=path)
    return preferences


def refused(error: TfctlError) -> ModuleFault:
    """Return the fault of a setting that cannot be used."""
    return fault(error.message, error.remedy, "inventory")


def settings_of(given: schema.Plain) -> HostSettings:
    """Return the settings that the action was given, where None stands for the default. Raises SchemaError."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value is not None
    }
    return HostSettings(**{**values, "preferences": preferences_of(values.get("preferences", {}))})


def preferences_of(given: schema.Plain) -> Preferences:
    """Return the settings that the action was given, where None stands for the default.

    A boolean in place of a list of names stands for all names, or for none. Raises SchemaError.
    """
    preferences = schema.parse(Preferences, {name: value for name, value in given.items() if value is not None})
    names = tuple(name.strip() for name in preferences.allow_unverified)
    if len(names) == 1 and names[0].lower() in _YES | _NO:
        names = (ALL,) if names[0].lower() in _YES else ()
    return replace(preferences, allow_unverified=names)
