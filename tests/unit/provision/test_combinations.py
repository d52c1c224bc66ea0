"""Every stack can be had on every system and GPU, or docs/stacks.md says that it cannot, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scripts import stack_table
from scripts.stack_table import CARDS, fresh_host, outcome
from tfctl.model import stacks
from tfctl.provision.decide.cards import GENERATIONS, identify, numbers
from tfctl.provision.decide.decision import Driver
from tfctl.provision.decide.driver import VERSIONED
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.wanted import ALL, Preferences, Wanted

SYSTEMS = list(stacks.systems())
T4 = CARDS["Turing (T4)"]


def test_page_has_the_tables_that_the_decisions_give() -> None:
    """Each stack, system and GPU is tried. A fault that the page does not explain is a KeyError here."""
    assert stack_table.page() == stack_table.PAGE.read_text(), "run .venv/bin/python -m scripts.stack_table"


def test_tables_have_a_gpu_of_each_generation() -> None:
    assert {identify(card).generation for card in CARDS.values()} == set(GENERATIONS)
    assert all(identify(card).generation == title.partition(" (")[0] for title, card in CARDS.items())


@pytest.mark.parametrize("stack", stacks.load())
def test_cpu_edition_is_available_on_every_system(stack: str) -> None:
    assert {outcome(stack, system).edition for system in SYSTEMS} == {"cpu"}


@pytest.mark.parametrize("stack", stacks.load())
def test_gpu_edition_is_available_on_every_system_for_each_gpu_that_the_stack_supports(stack: str) -> None:
    needs = stacks.get(stack).gpu
    assert needs
    for card in CARDS.values():
        if numbers(needs.capability.min) <= numbers(identify(card).capability) <= numbers(needs.capability.max):
            for system in SYSTEMS:
                found = outcome(stack, system, card)
                assert found.edition == "gpu" or card == CARDS["Grace Hopper (GH200)"], (system, identify(card))


@pytest.mark.parametrize("stack", [stack.name for stack in stacks.load().values() if stack.horovod])
def test_horovod_is_available_on_every_system_in_both_editions(stack: str) -> None:
    for system in SYSTEMS:
        assert outcome(stack, system, horovod=True).edition == "cpu"
        assert outcome(stack, system, T4, horovod=True).edition == "gpu"


@pytest.mark.parametrize("system", SYSTEMS)
def test_tensorflow_2_0_with_horovod_is_available_without_unverified_downloads(system: str) -> None:
    """CUDA 10.0, cuDNN 7.6, Python 3.7, TensorFlow 2.0 and Horovod 0.18 on a V100, with either Open MPI."""
    for openmpi, version in {"auto": stacks.systems()[system].openmpi, "source": "4.0.1"}.items():
        found = outcome("tf2.0", system, CARDS["Volta (V100)"], horovod=True, openmpi=openmpi)
        assert (found.edition, found.allow, found.nccl, found.openmpi) == ("gpu", (), False, version)


def driver_of(host: Facts, stack: str, **preferences: object) -> tuple[Driver | None, list[str]]:
    """Return what is decided about a host's driver, and the faults. Everything may be downloaded."""
    given = {"nvidia_key_file": "/key.asc", "allow_unverified": (ALL,), **preferences}
    wanted = Wanted(880, ("/srv/tfctl",), ("ops",), stack, Preferences(**given))  # type: ignore[arg-type]
    decision, faults = decide(host, wanted)
    return decision.gpu.driver if decision.gpu else None, [fault["message"] for fault in faults]


def fresh_drivers(stack: str) -> Iterator[tuple[Facts, str, Driver]]:
    """Yield each host that can have the gpu edition of a stack, with each method of a driver and what it gets."""
    for system in SYSTEMS:
        for card in CARDS.values():
            host = fresh_host(system, card, sent=True)
            for method in ("auto", "repo"):
                driver, faults = driver_of(host, stack, driver_method=method)
                if driver and not faults:
                    yield host, method, driver


@pytest.mark.parametrize("stack", stacks.load())
@pytest.mark.parametrize("version", ["535.309.01", "580.159.03"])
def test_each_host_gets_the_wanted_version_of_the_driver_or_is_told_why_it_cannot(stack: str, version: str) -> None:
    """See test_apt_simulation.py for what apt makes of it."""
    for host, method, fresh in fresh_drivers(stack):
        driver, faults = driver_of(host, stack, driver=version, driver_method=method)
        if faults:
            (fault,) = faults
            assert fault.startswith(f"tfctl_driver is {version[:3]}; ") and version[:3] != fresh.version, fault
            continue
        assert driver and (driver.version, driver.pin, driver.upgrade) == (version, version, True)
        pinned = [name for name in driver.packages if VERSIONED.match(name)]
        if driver.method == "distribution" or host.packager == "dnf":
            assert pinned and all(name.endswith(f"={version}-*") for name in pinned), pinned


@pytest.mark.parametrize("stack", stacks.load())
def test_each_driver_of_tfctls_own_is_upgraded_in_its_branch_if_that_is_wanted(stack: str) -> None:
    for host, method, fresh in fresh_drivers(stack):
        assert host.gpu
        origin = "nvidia" if fresh.method == "repo" else "canonical" if host.system.startswith("ubuntu") else "debian"
        there = f"{fresh.version}.200.1"
        gpu = replace(host.gpu, loaded=there, version=there, origins=(origin,), own=True, modprobe=True, at_boot=True)
        installed = replace(host, gpu=gpu)
        kept, faults = driver_of(installed, stack, driver_method=method)
        assert not faults and (kept is None or (kept.version, kept.upgrade) == (there, False))
        upgraded, faults = driver_of(installed, stack, driver_method=method, upgrade_driver=True)
        assert not faults and upgraded and upgraded.upgrade
        assert (upgraded.method, upgraded.version, upgraded.packages) == (fresh.method, fresh.version, fresh.packages)
