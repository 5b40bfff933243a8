"""Slurm's reasons in plain words: every code that Slurm has, and those that it has not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.reasons import LAUNCH_FAILED_HELD, REASONS, reason_of

#: job_state_reason.c, the parts of its names: limit → the words in front of and behind the resource.
RESOURCES = ("BB", "Billing", "Energy", "GRES", "License", "Unknown")
GROUPS = [
    f"{who}Grp{what}{more}" for who in ("Assoc", "QOS") for what in RESOURCES for more in ("", "Minutes", "RunMinutes")
]
ONE_JOB = [
    f"{who}Max{what}{more}" for who in ("Assoc", "QOS") for what in RESOURCES for more in ("PerJob", "MinutesPerJob")
]
SHARES = [f"QOSMax{what}PerUser" for what in RESOURCES] + [f"Max{what}PerAccount" for what in RESOURCES]


@pytest.mark.parametrize("code", [*REASONS, *GROUPS, *ONE_JOB, *SHARES])
def test_every_code_of_slurm_has_words_of_its_own(code: str) -> None:
    assert "Slurm says" not in reason_of(code).words
    assert code not in reason_of(code).words


@pytest.mark.parametrize("code", [*GROUPS, *SHARES, "AssocMaxJobsLimit", "QOSMaxJobsPerUserLimit", "Priority"])
def test_what_others_free_again_is_waited_for(code: str) -> None:
    assert reason_of(code).kind == "waits"


@pytest.mark.parametrize(
    "code",
    [
        *ONE_JOB,
        "PartitionTimeLimit",
        "BadConstraints",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxCpuPerJobLimit",
        "QOSMinGRES",
    ],
)
def test_a_job_that_is_too_large_for_ever_says_what_to_change(code: str) -> None:
    assert reason_of(code).kind == "for ever"
    assert reason_of(code).words.startswith("can never run: ")
    assert ";" in reason_of(code).words


@pytest.mark.parametrize(
    "code", ["PartitionTimeLimit", "PartitionNodeLimit", "MaxMemPerLimit", "QOSMinGRES", "ReqResv"]
)
def test_the_reason_of_one_partition_is_none_where_there_are_several(code: str) -> None:
    assert reason_of(code, "short").kind == "for ever"
    assert reason_of(code, "long,short").kind == "waits"
    assert "one of its partitions" in reason_of(code, "long,short").words


@pytest.mark.parametrize("code", ["DependencyNeverSatisfied", "BadConstraints", "PartitionDown", "Priority"])
def test_a_reason_of_the_job_itself_stays_with_several_partitions(code: str) -> None:
    assert reason_of(code, "long,short") == reason_of(code)


@pytest.mark.parametrize("code", ["JobHeldUser", "JobHeldAdmin", LAUNCH_FAILED_HELD, "InvalidAccount", "PartitionDown"])
def test_what_a_person_did_is_left_to_a_person(code: str) -> None:
    assert reason_of(code).kind == "person"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(ReqNodeNotAvail, UnavailableNodes:n[1-2],n7)", "(n[1-2],n7)"),
        ("ReqNodeNotAvail, Reserved for maintenance", "maintenance"),
        ("(ReqNodeNotAvail,_Reserved_for_maintenance)", "maintenance"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions", "drained"),
        ("launch_failed_requeued_held", "failed to start it"),
        ("Reservation course was deleted", "its reservation was deleted"),
        ("(Reservation_course_is_invalid)", "its reservation is not valid"),
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
