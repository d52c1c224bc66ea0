"""Decide whether a host's driver works, whether the host needs a reboot, and what prevents one."""

from __future__ import annotations

from dataclasses import dataclass

from tfctl.provision.decide.facts import GpuFacts
from tfctl.provision.decide.fault import fault


@dataclass(frozen=True)
class DriverState:
    """What the module gpu_state gathers. ``units``: of jobs that have not ended."""

    gpu: GpuFacts | None
    units: tuple[str, ...]
    machine_id: str
    boot_id: str


@dataclass(frozen=True)
class Control:
    """The machine that Ansible runs on. ``local``: whether the host is reached by a local connection."""

    machine_id: str
    boot_id: str
    local: bool


@dataclass(frozen=True)
class RebootDecision:
    """``reason``: why the host must be rebooted; ``objection``: why tfctl must not do that; ``problem``: why the host
    is not ready, with ``remedy``. Each is "" if there is none.
    """

    reason: str
    objection: str
    problem: str
    remedy: str


MISSING = (
    "restart {host}. If a GPU does not return, have the card repaired. To use the host without it, set "
    "tfctl_gpus_expected to the number of the others"
)
#: The error is 802, CUDA_ERROR_SYSTEM_NOT_READY (docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide).
NO_FABRIC = "nvidia-fabricmanager does not run: CUDA cannot start on a host with NVSwitches"
_RESTART = "restart {host}, or leave it out with --limit '!{host}'"


def reason(gpu: GpuFacts) -> str:
    """Return why the host must be rebooted before its GPUs can be used, or ""."""
    if gpu.nouveau and gpu.version:
        return f"driver {gpu.version} is installed, and nouveau still holds the GPU"
    if gpu.loaded and gpu.version not in ("", gpu.loaded):
        return f"driver {gpu.version} is installed, {gpu.loaded} is loaded"
    return ""


def notice(why: str) -> str:
    """Return what preflight says about a host that will need a reboot."""
    return f"will need a reboot: {why}. --reboot does it; if this is the machine that tfctl runs on, reboot it yourself"


def judge(gpu: GpuFacts, state: DriverState, control: Control, expected: int = 0) -> RebootDecision:
    """Judge a host that has GPUs. ``expected``: how many, see `missing`."""
    why = reason(gpu)
    objection, remedy = _objection(gpu, state, control) if why else ("", "")
    problem = f"needs a reboot: {why}"
    if not why:
        problem, remedy = _defect(gpu, expected)
    if objection:
        problem += f". tfctl does not reboot it: {objection}"
    if why and not remedy:
        remedy = "tfctl provision INVENTORY --reboot, or reboot it yourself and provision it again"
    return RebootDecision(why, objection, problem, remedy)


def report(state: DriverState, control: Control, insist: bool, expected: int = 0) -> dict[str, object]:
    """Return what the role nvidia_driver uses; roles/nvidia_driver/tasks says how. Or return a failure, if the host has
    no GPU any more or, with ``insist``, if its driver does not work. ``expected``: how many GPUs, see `missing`.
    """
    gpu = state.gpu
    if gpu is None:
        return {"failed": True, "msg": "the GPU is gone from the PCI bus; see dmesg on the host"}
    verdict = judge(gpu, state, control, expected)
    if insist and verdict.problem:
        faults = [fault(verdict.problem, verdict.remedy, "failed")]
        return {"failed": True, "msg": verdict.problem, "faults": faults}
    return {
        "ready": bool(gpu.loaded and not gpu.missing_nodes),
        "persistent": gpu.persistence,
        "reason": verdict.reason,
        "objection": verdict.objection,
        "in_use": in_use(gpu, state)[0],
        "boot_id": state.boot_id,
    }


def _objection(gpu: GpuFacts, state: DriverState, control: Control) -> tuple[str, str]:
    """Return (why tfctl must not reboot this host, remedy), or ("", "") if it may."""
    pairs = ((state.machine_id, control.machine_id), (state.boot_id, control.boot_id))
    if control.local or any(host and host == own for host, own in pairs):
        return "it is the machine that tfctl runs on", "reboot it yourself, then provision again"
    return in_use(gpu, state)


def in_use(gpu: GpuFacts, state: DriverState) -> tuple[str, str]:
    """Return (which jobs run, or which processes use the GPU, remedy), or ("", "") if there are none."""
    if state.units:
        return f"{' and '.join(state.units[:3])} run", "tfctl stop the job, or wait for it, then provision again"
    if gpu.processes:
        return f"{users(gpu)} use the GPU", "wait for them or end them, then provision again"
    return "", ""


def _defect(gpu: GpuFacts, expected: int) -> tuple[str, str]:
    """Return (why an installed driver does not work, remedy), or ("", "")."""
    answers = sorted({each.driver for each in gpu.smi.gpus})
    if not gpu.loaded:
        return _not_loaded(gpu)
    if gpu.smi.said or not answers:
        return f"nvidia-smi: {gpu.smi.said or 'it shows no GPU'}", f"see dmesg on {{host}}; {_RESTART}"
    if problem := missing(gpu, expected):
        return problem, MISSING
    if gpu.version and answers != [gpu.version]:
        return f"nvidia-smi reports driver {', '.join(answers)}, but {gpu.version} is installed", _RESTART
    if gpu.missing_nodes:
        remedy = "to see why they were not created, run on {host}: systemctl status tfctl_nvidia.service"
        return missing_nodes(gpu), remedy
    if gpu.switches and gpu.fabric_manager != gpu.version:
        message = f"fabric manager {gpu.fabric_manager or 'none'} and driver {gpu.version} differ: CUDA cannot start"
        return message, "install nvidia-fabricmanager in the driver's version on {host}"
    if gpu.switches and not gpu.fabric_running:
        return NO_FABRIC, "to see why, run on {host}: journalctl -b -u nvidia-fabricmanager.service"
    if gpu.own and not gpu.persistence:
        return "nvidia-persistenced does not run, or persistence mode is off", (
            "to see why, run on {host}: systemctl status nvidia-persistenced.service"
        )
    return "", ""


def _not_loaded(gpu: GpuFacts) -> tuple[str, str]:
    release = gpu.kernel.release
    if not gpu.kernel.module:
        log = "dkms status, and make.log below /var/lib/dkms"
        return f"the driver is installed, but has no module for the running kernel {release}", (
            f"to see why DKMS has not built it, check on {{host}}: {log}"
        )
    if gpu.secure_boot and not gpu.mok and gpu.dkms:
        return "the driver is installed, but Secure Boot prevents its module from loading", (
            "enrol the key of DKMS on {host} (mokutil --import), or turn Secure Boot off"
        )
    return (
        "the driver is installed, but not loaded",
        "to see why, run on {host}: journalctl -b -u tfctl_nvidia.service; dmesg",
    )


def missing_nodes(gpu: GpuFacts) -> str:
    """Name the device nodes that CUDA needs and that do not exist."""
    return f"CUDA cannot start without {' and '.join(gpu.missing_nodes)}, which the host does not have"


def missing(gpu: GpuFacts, expected: int) -> str:
    """Name the GPUs that are missing, or return "". ``expected``: tfctl_gpus_expected, or 0: those on the PCI bus."""
    shown, there = len(gpu.smi.gpus), len(gpu.devices)
    seen = f"nvidia-smi shows {shown}" if shown else f"{there} are on the PCI bus"
    if (shown or there) >= expected if expected else not gpu.lost:
        return ""
    named = [f"{each.slot} is missing" + (f" ({each.reason})" if each.reason else "") for each in gpu.lost]
    wanted = f"tfctl_gpus_expected is {expected}" if expected else f"{there} GPUs are on the PCI bus"
    return f"{wanted}, and {seen}" + (f": {', '.join(named)}" if named else "")


def users(gpu: GpuFacts) -> str:
    """Name the processes that have a GPU open."""
    shown = [f"{each.name} ({each.pid})" for each in gpu.processes[:3]]
    more = len(gpu.processes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
