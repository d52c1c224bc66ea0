"""Decide which Horovod a host gets, and which Open MPI for it."""

from __future__ import annotations

import hashlib
import json

from tfctl.model import stacks
from tfctl.model.stacks import Stack
from tfctl.provision.decide import openmpi
from tfctl.provision.decide.decision import (
    ChosenStack,
    CudaHomes,
    GpuSoftware,
    Horovod,
    HorovodBuild,
    OpenMpi,
    Toolchain,
)
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.toolchain import toolchain
from tfctl.provision.decide.wanted import Wanted

FORMAT = 1  # of the build process: a new number rebuilds everything
HOME = "/opt/tfctl/horovod"


def decide(
    facts: Facts,
    wanted: Wanted,
    stack: Stack,
    own: ChosenStack,
    gpu: GpuSoftware | None,
    findings: Findings,
) -> tuple[OpenMpi | None, Horovod | None]:
    """Return the decisions about Open MPI and Horovod, None where there is nothing to do, or with a fault.

    ``own`` and ``gpu`` are parts of the decision. Add a notice if the GPUs cannot reduce by themselves.
    """
    if not wanted.preferences.horovod:
        there = own.environment in facts.horovods
        return openmpi.without(facts, own), Horovod("", own.path, "") if there else None
    if stack.horovod is None:
        fitting = [name for name, each in wanted.stacks.items() if each.horovod]
        remedy = f"set tfctl_horovod: false, or take {' or '.join(fitting)}"
        findings.refuse(f"no release of Horovod builds for {stack.name}", remedy, "inventory")
        return None, None
    cuda = _cuda_homes(stack, gpu)
    compiler = toolchain(facts, wanted, stack, cuda is not None, findings)
    if compiler is None:
        return None, None
    faults = len(findings.faults)
    mpi = openmpi.openmpi(facts, wanted, stack, own, compiler, findings)
    if len(findings.faults) > faults:
        return None, None
    if own.edition == "gpu" and (gpu is None or gpu.cuda is None):
        findings.notices.append(
            "Horovod is built without NCCL and averages gradients on the CPU, because the wheels of CUDA do not "
            "contain nvcc. To build it with NCCL, set tfctl_cuda_method=archive, then run tfctl provision again"
        )
    return mpi, _build(facts, stack, stack.horovod, own, mpi, compiler, cuda)


def _cuda_homes(stack: Stack, gpu: GpuSoftware | None) -> CudaHomes | None:
    """Return where CUDA and NCCL are, or None without nvcc or NCCL. The stack's wheels may include NCCL."""
    if gpu is None or gpu.cuda is None or stack.gpu is None:
        return None
    if gpu.nccl is None and not stack.gpu.wheels:
        return None
    return CudaHomes(gpu.cuda.home, gpu.nccl.home if gpu.nccl else "")


def _build(
    facts: Facts,
    stack: Stack,
    offered: stacks.HorovodSource,
    own: ChosenStack,
    mpi: OpenMpi | None,
    compiler: Toolchain,
    cuda: CudaHomes | None,
) -> HorovodBuild:
    python, tools = own.python.version, stack.build_lock(own.python.version)
    if mpi and not mpi.prefix:
        mpi = None
    made_of: list[object] = [FORMAT, facts.system, facts.machine, python, stack.imports["tensorflow"], own.edition]
    made_of += [offered.version, offered.sha256, offered.gloo, hashlib.sha256(tools.read_bytes()).hexdigest()]
    made_of += [compiler.gcc, [mpi.method, mpi.version, mpi.prefix] if mpi else None]
    made_of += [{"cuda": cuda.cuda, "nccl": cuda.nccl}] if cuda else []
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    return HorovodBuild(
        home=f"{HOME}/{key}",
        environment=own.path,
        version=offered.version,
        key=key,
        python=python,
        source=f"horovod=={offered.version} --hash=sha256:{offered.sha256}\n",
        tools=str(tools),
        compiler=compiler,
        mpi=mpi.prefix if mpi else "",
        gloo=offered.gloo,
        gpu=cuda,
    )
