from __future__ import annotations

import pytest
from builders import NOW, a_claim, a_job, a_look, a_row, a_run, a_slot, an_exit, token
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import BadNode, Death
from orchestrator.decisions.nodes import EXCLUDED_S, NODES_AT_ONCE, WITHIN_S, decayed, excluded, with_death
from orchestrator.executors.base import JobState

Nodes = tuple[BadNode, ...]


def after_deaths(*deaths: tuple[str, int, float], elsewhere: bool = False, cause: str = "") -> Nodes:
    """(node, slot, at), in their order, all of one `cause`."""
    nodes: Nodes = ()
    for node, slot, at in deaths:
        death = Death(slot=slot, at=at, cause=cause, served_elsewhere=elsewhere)
        nodes, _ = with_death(decayed(nodes, at), node, death)
    return nodes


class TestMemory:
    def test_two_slots_that_die_on_a_node_make_it_bad(self) -> None:
        assert excluded(after_deaths(("n1", 0, NOW), ("n1", 1, NOW)), NOW) == ("n1",)

    def test_one_slot_alone_does_not(self) -> None:
        assert excluded(after_deaths(*[("n1", 0, NOW)] * 9), NOW) == ()

    def test_one_slot_that_another_node_served_well_does_with_its_third_death(self) -> None:
        assert excluded(after_deaths(*[("n1", 0, NOW)] * 2, elsewhere=True), NOW) == ()
        assert excluded(after_deaths(*[("n1", 0, NOW)] * 3, elsewhere=True), NOW) == ("n1",)

    def test_what_a_program_dies_of_on_two_nodes_is_its_own_fault(self) -> None:
        on_one, on_the_other = [("n1", slot, NOW) for slot in (0, 1, 2)], [("n2", slot, NOW + 1) for slot in (0, 1, 2)]
        cause = "python3: can't open file 'trian.py' (exit code 2)"
        assert excluded(after_deaths(*on_one, cause=cause), NOW + 1) == ("n1",)
        assert excluded(after_deaths(*on_one, *on_the_other, cause=cause), NOW + 1) == ()
        # A slot that has done well on a third node accuses them, whatever it says.
        assert excluded(after_deaths(*on_one, *on_the_other, cause=cause, elsewhere=True), NOW + 1) == ("n1", "n2")
        # And what only one of them does to jobs is that node's.
        mixed = after_deaths(*on_one, ("n2", 0, NOW + 1), cause=cause)
        mixed, begins = with_death(mixed, "n2", Death(slot=1, at=NOW + 2, cause="a CUDA error"))
        assert not begins
        mixed, begins = with_death(mixed, "n2", Death(slot=2, at=NOW + 2, cause="a CUDA error"))
        assert begins

    def test_an_exclusion_ends(self) -> None:
        nodes = after_deaths(("n1", 0, NOW), ("n1", 1, NOW))
        assert excluded(nodes, NOW + EXCLUDED_S - 1) == ("n1",)
        assert excluded(nodes, NOW + EXCLUDED_S) == ()
        assert decayed(nodes, NOW + WITHIN_S) == ()

    @given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.floats(0, 86400)), max_size=40))
    def test_there_are_never_too_many(self, deaths: list[tuple[str, int, float]]) -> None:
        ordered = sorted(deaths, key=lambda death: death[2])
        assert len(excluded(after_deaths(*ordered, elsewhere=True), max((d[2] for d in ordered), default=0))) <= (
            NODES_AT_ONCE
        )


@pytest.mark.parametrize(
    ("code", "log_tail", "facts", "blamed"),
    [
        (None, "/usr/bin/python3: No module named orchestrator\n", {}, False),
        (None, "ModuleNotFoundError: No module named 'anchorleg.files'\n", {}, False),
        (1, "ImportError: cannot import name 'x' from 'trainer.training' (/r/code/0/trainer/x.py)\n", {}, False),
        (1, "ModuleNotFoundError: No module named 'numpy'\n", {}, True),
        (None, 'there is no /sw/python on node1: set "python" in the config to …\n', {}, True),
        (None, 'there is no /sw/python on node1: set "python" in the config to …\n', {"lacking": True}, False),
        (2, "python3: can't open file '/home/ann/train.py': [Errno 2]\n", {"lacking": True}, False),
        (1, "RuntimeError: CUDA error: device unavailable\n", {"lacking": True, "trainer": True}, True),
        (2, "the config's training.batch_size must be positive\n", {"trainer": True}, False),
        (3, "all checkpoints are damaged\n", {"trainer": True}, False),
        (3, "all checkpoints are damaged\n", {}, True),
    ],
)
def test_what_would_follow_the_job_to_every_node_accuses_none_and_forgives(
    code: int | None, log_tail: str, facts: dict[str, bool], blamed: bool
) -> None:
    run = a_run(*[a_slot(index).with_attempt(a_job(token(index), node="node1")) for index in (0, 1)])
    look = a_look().seeing(
        *[a_row(token(index), JobState.ENDED, "FAILED", job_id="101", node="node1") for index in (0, 1)]
    )
    for index in (0, 1):
        claim, ended = a_claim(token(index), at=NOW - 60), an_exit(code or 0, token(index))
        left = {} if code is None else {"claim": claim, "exit": ended}
        look = look.reading(Evidence(log_tail=log_tail, **left), index, 0)
    after = look.folded_into(run, **facts)[0]
    assert (excluded(after.nodes, NOW) == ("node1",)) is blamed

    causes = {slot.attempts[0].cause.replace(" on node1", "") for slot in after.slots}
    (cause,) = causes
    accused = after_deaths(("node1", 2, NOW - 60), ("node1", 3, NOW - 60), ("node2", 2, NOW - 60), cause=cause)
    later = look.folded_into(run.model_copy(update={"nodes": accused}), **facts)[0]
    assert blamed or later.nodes == ()
