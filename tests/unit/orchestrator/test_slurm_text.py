"""What Slurm prints, read: on recordings of a real one, and on anything else that may come."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.executors.base import JobState, SubmitRefused, Submitted, Uncertain
from orchestrator.executors.slurm import scrubbed
from orchestrator.executors.slurm_text import (
    MARK,
    UnreadableError,
    cancel_complaint,
    job_state,
    parse_min_job_age_s,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    read_submission,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"


def recorded(command: str, case: str, version: str = "22.05.8") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FIXTURES / f"{command}-{version}.json").read_text())[case]
    return value


def submission(case: str) -> Submitted | Uncertain | SubmitRefused:
    answer = recorded("sbatch", case)
    return read_submission(answer["returncode"], answer["stdout"], answer["stderr"])


# --- states ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ("RUNNING", JobState.RUNNING),
        ("CONFIGURING", JobState.PENDING),
        ("COMPLETING", JobState.ENDING),
        ("CANCELLED by 33", JobState.ENDED),
        ("CANCELLED+", JobState.ENDED),
        ("OUT_OF_MEMORY", JobState.ENDED),
        ("SPECIAL_EXIT", JobState.PENDING),
        ("POWER_UP_NODE", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
    ],
)
def test_a_state_means_what_its_first_word_says(raw: str, state: JobState) -> None:
    assert job_state(raw) is state


# --- squeue ---------------------------------------------------------------------------------------------------------


def marked(*lines: str) -> str:
    """Lines of `|`-separated fields as Slurm prints them for us."""
    return "".join(line.replace("|", MARK) + MARK + "\n" for line in lines)


def squeue_table(*rows: str) -> str:
    return marked("JOBID|STATE|REASON|PARTITION|NODELIST|SUBMIT_TIME|START_TIME|END_TIME|WORK_DIR", *rows)


def squeue_cut(characters: int) -> str:
    """A table whose last row lacks its last characters."""
    return squeue_table("9|RUNNING|None|gpu|n1|1|2|N/A|/r/jobs/s0-a0-00000000")[:-characters]


def test_a_queue_of_many_states_is_read() -> None:
    rows = parse_squeue(recorded("squeue", "many states")["stdout"])

    assert sorted((row.state, row.reason) for row in rows) == [
        (JobState.ENDED, ""),
        (JobState.PENDING, "Dependency"),
        (JobState.PENDING, "JobHeldUser"),
        (JobState.PENDING, "JobHeldUser"),
        (JobState.PENDING, "PartitionTimeLimit"),
        (JobState.PENDING, "Priority"),
        (JobState.PENDING, "Resources"),
        (JobState.RUNNING, ""),
    ]
    running = next(row for row in rows if row.state is JobState.RUNNING)
    assert running.node == "n1"
    assert running.started_at is not None
    assert running.ends_at == running.started_at + 600
    waiting = next(row for row in rows if row.reason == "Resources")
    assert (waiting.node, waiting.started_at, waiting.ends_at) == ("", None, None)


def test_a_work_folder_may_hold_the_delimiter_and_newlines() -> None:
    rows = parse_squeue(recorded("squeue", "many states")["stdout"])

    names = {row.work_dir.split("/", 3)[3] for row in rows if row.work_dir.count("/") > 2}
    assert names == {"a|b 1|RUNNING|c", "line\nbreak"}


@pytest.mark.parametrize("before", ["", "Loading slurm/22.05\n\n", "7|RUNNING|None|gpu\n2026\n", "[no newline] "])
@pytest.mark.parametrize("after", ["", "\nNote: /scratch is full\n", "7 jobs"])
def test_what_a_wrapper_prints_around_the_rows_changes_nothing(before: str, after: str) -> None:
    table = squeue_table("9|RUNNING|None|gpu|n1|1|2|N/A|/r/my\nrun", "8|PENDING|None|gpu||1|N/A|N/A|/r/b")

    assert parse_squeue(before + table + after) == parse_squeue(table)
    assert [row.work_dir for row in parse_squeue(table)] == ["/r/my\nrun", "/r/b"]
    assert parse_squeue(before + squeue_table() + after) == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(squeue_cut(40), id="a row that breaks off"),
        pytest.param(squeue_cut(40) + "\n" + squeue_table("8|RUNNING|None|gpu|n1|1|2|N/A|/b"), id="before another"),
        pytest.param(squeue_cut(8) + squeue_table("8|RUNNING|None|gpu|n1|1|2|N/A|/b"), id="in its folder"),
        pytest.param(squeue_table("x|RUNNING|None|gpu|n1|1|2|N/A|/b"), id="no id"),
        pytest.param(squeue_table("8|RUNNING|None|gpu|n1|1|/b"), id="fewer columns"),
        pytest.param(squeue_table("8|RUNNING|None|gpu|n1|1|2|N/A|/b").partition("\n")[2], id="no header"),
    ],
)
def test_a_marked_row_that_is_no_row_makes_the_whole_answer_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_squeue(text)


FOLDERS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1).map(
    lambda name: "/" + name
)


@given(st.lists(st.tuples(st.integers(1, 2**31), st.sampled_from(["PENDING", "RUNNING", "NEW_STATE"]), FOLDERS)))
def test_every_row_of_a_queue_is_read_whatever_the_folders_are_called(jobs: list[tuple[int, str, str]]) -> None:
    text = squeue_table(*(f"{number}|{state}|None|gpu|n1|1|2|N/A|" for number, state, _ in jobs))
    for _, _, folder in jobs:
        text = text.replace(f"{MARK}{MARK}\n", f"{MARK}{folder}{MARK}\n", 1)

    rows = parse_squeue(text)

    assert [(int(row.job_id), row.raw_state, row.work_dir) for row in rows] == jobs


NEARLY_RECORDS = st.lists(
    st.one_of(st.text(), st.from_regex(r"[0-9]{1,9000}"), st.sampled_from(["RUNNING", "7:0", "up", "1:00", "gpu:1"])),
    min_size=7,
    max_size=9,
).map("|".join)


@given(st.one_of(st.text(), NEARLY_RECORDS))
def test_no_text_makes_a_parser_fail_in_another_way(text: str) -> None:
    for parse in (parse_squeue, parse_sacct, parse_sinfo):
        with contextlib.suppress(UnreadableError):
            parse(text)
    parse_min_job_age_s(text)
    cancel_complaint(text)


# --- sacct ----------------------------------------------------------------------------------------------------------


def test_the_history_tells_how_jobs_ended() -> None:
    rows = parse_sacct(recorded("sacct", "several ends")["stdout"])

    ends = {(row.raw_state, row.state, row.exit_code) for row in rows}
    assert {
        ("FAILED", JobState.ENDED, 7),
        ("FAILED", JobState.ENDED, 128 + 9),
        ("CANCELLED by 0", JobState.ENDED, 0),
        ("RUNNING", JobState.RUNNING, None),
    } <= ends
    running = next(row for row in rows if row.state is JobState.RUNNING)
    assert (running.node, running.ends_at) == ("n1", None)
    never = next(row for row in rows if row.node == "")
    assert never.raw_state == "CANCELLED by 0"


# --- sbatch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdout", "job_id"), [("17;west\n", "17;west"), ("Welcome to Pegasus!\n17\n17\n", "17"), ("17", "17")]
)
def test_the_id_is_found_beside_what_sites_add(stdout: str, job_id: str) -> None:
    assert read_submission(0, stdout, "") == Submitted(job_id=job_id)


KINDS = {
    "permanent": (
        "no such partition", "no such account", "no such qos", "over the partition's limit", "too many gpus",
        "no such gpu type", "too much memory", "too many cpus", "too many nodes", "no such feature", "no such node",
        "no such reservation", "no such script", "not a script", "unknown option", "wrong time", "qos's walltime limit",
    ),
    "quota": ("user's submit limit", "qos's submit limit"),
    "temporary": ("controller is dead", "inactive partition", "munged is dead"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, cases in KINDS.items() for case in cases])
def test_a_refusal_is_for_good_a_limit_or_passes_by_itself(kind: str, case: str) -> None:
    outcome = submission(case)

    assert isinstance(outcome, SubmitRefused)
    assert outcome.kind == kind
    assert outcome.words


def test_a_controller_that_did_not_answer_may_have_taken_the_job() -> None:
    assert submission("controller hangs") == Uncertain(
        why="Batch job submission failed: Socket timed out on send/recv operation", silent=True
    )


@pytest.mark.parametrize(
    ("returncode", "stdout", "stderr"),
    [
        (0, "", ""),
        (0, "Submitted somehow\n", ""),
        (0, "Welcome to Pegasus!\n2026\n17\n", ""),
        (0, "17\n4711 cores are idle:\n4711\n", ""),
        (1, "", ""),
        (1, "", "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n"),
        (1, "", "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)\n"),
        (1, "", "sbatch: error: the moon is in the wrong phase\n"),
        (-9, "", ""),
        (1, "4711\n", ""),
        (1, "4711\n", "sbatch-wrapper: Permission denied\n"),
        (127, "4711;cluster2\n", "sbatch: error: AssocMaxSubmitJobLimit\n"),
    ],
)
def test_an_answer_that_excludes_nothing_is_uncertain(returncode: int, stdout: str, stderr: str) -> None:
    assert isinstance(read_submission(returncode, stdout, stderr), Uncertain)


# --- scancel and folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    ["a waiting job is woken", "an ended job is woken", "an unknown job is woken", "an ended job", "an unknown job"],
)
def test_jobs_that_are_unknown_over_or_waiting_are_nothing_to_complain_of(case: str) -> None:
    assert cancel_complaint(recorded("scancel", case)["stderr"]) is None


def test_what_would_change_the_answers_is_kept_from_slurms_commands() -> None:
    own = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    assert scrubbed({**own, "SQUEUE_FORMAT": "%i", "SLURM_JOB_ID": "7", "SBATCH_ACCOUNT": "x"}) == own
