"""Slurm's reasons in plain words: every code that Slurm has, and those that it has not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.reasons import LAUNCH_FAILED_HELD, REASONS, Kind, reason_of

#: job_state_reason.c, the parts of its names: whose limit, of what, for whom.
RESOURCES = ("BB", "Billing", "Energy", "GRES", "License", "Unknown")
WHO = ("Assoc", "QOS")
LIMITS: dict[str, Kind] = {
    **{f"{who}Grp{what}{more}": "waits" for who in WHO for what in RESOURCES for more in ("", "Minutes", "RunMinutes")},
    **{f"{who}Max{what}{more}PerJob": "for ever" for who in WHO for what in RESOURCES for more in ("", "Minutes")},
    **{f"QOSMax{what}PerUser": "waits" for what in RESOURCES},
    **{f"Max{what}PerAccount": "waits" for what in RESOURCES},
    **dict.fromkeys(("AssocMaxJobsLimit", "QOSMaxJobsPerUserLimit"), "waits"),
    **dict.fromkeys(("QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit", "QOSMinGRES"), "for ever"),
}


@pytest.mark.parametrize("code", [*REASONS, *LIMITS])
def test_every_code_of_slurm_has_words_of_its_own(code: str) -> None:
    reason = reason_of(code)
    assert "Slurm says" not in reason.words
    assert reason.kind == LIMITS.get(code, reason.kind)
    assert reason.words.startswith("can never run: ") is (reason.kind == "for ever")


@pytest.mark.parametrize(
    "code", ["PartitionTimeLimit", "PartitionNodeLimit", "MaxMemPerLimit", "QOSMinGRES", "ReqResv"]
)
def test_the_reason_of_one_partition_is_none_where_there_are_several(code: str) -> None:
    assert (reason_of(code, "short").kind, reason_of(code, "long,short").kind) == ("for ever", "waits")
    for other in ("DependencyNeverSatisfied", "BadConstraints", "PartitionDown", "Priority"):
        assert reason_of(other, "long,short") == reason_of(other)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(ReqNodeNotAvail, UnavailableNodes:n[1-2],n7)", "(n[1-2],n7)"),
        ("(ReqNodeNotAvail,_Reserved_for_maintenance)", "maintenance"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions", "drained"),
        (LAUNCH_FAILED_HELD.replace(" ", "_"), "failed to start it"),
        ("Reservation course was deleted", "its reservation was deleted"),
        ("", "is new"),
    ],
)
def test_sentences_of_slurm_are_read_in_all_their_spellings(text: str, part: str) -> None:
    assert part in reason_of(text).words


@given(st.text(min_size=1))
def test_a_reason_that_nobody_knows_is_shown_and_waited_for_unless_it_is_known(text: str) -> None:
    reason = reason_of(f"Xq {text}")
    assert reason.words
    assert reason.kind == "waits" or "Slurm says" not in reason.words
