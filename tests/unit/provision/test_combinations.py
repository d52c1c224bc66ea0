"""Every stack can be had on every system and GPU, or docs/stacks.md says that it cannot, and why."""

from __future__ import annotations

import pytest

from scripts import stack_table
from scripts.stack_table import CARDS, outcome
from tfctl.model import stacks
from tfctl.provision.decide.cards import GENERATIONS, identify, numbers

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
