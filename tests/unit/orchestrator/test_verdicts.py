from __future__ import annotations

import signal

import pytest
from builders import NOW, a_claim, an_exit, gone, progress
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.evidence import Evidence, Exit
from orchestrator.decisions.models import Verdict
from orchestrator.decisions.verdicts import (
    CAUSES,
    DISK_FULL,
    LAST_WORDS,
    NOT_SEEN_THERE,
    PREEMPTED,
    cause_in,
    disk_words,
    judge,
    made_progress,
    told_to_others,
)
from orchestrator.run.evidence import LOG_TAIL_BYTES


def left(exit_: Exit | None = None, **more: object) -> Evidence:
    return Evidence.model_validate({"claim": a_claim(), "exit": exit_, **more})


def verdict_of(evidence: Evidence, raw_state: str = "") -> Verdict:
    return judge(evidence, gone(raw_state))[0]


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (left(an_exit(0)), Verdict.FINISHED),
        (left(an_exit(0), progress=progress(1000, 1000)), Verdict.FINISHED),
        (left(an_exit(0, newest=500), progress=progress(500, 1000)), Verdict.HANDED_OVER),
        (left(an_exit(0), progress=progress(500, 1000), start_step=500), Verdict.NO_PROGRESS),
        (left(an_exit(75, asked="deadline")), Verdict.HANDED_OVER),
        (left(an_exit(75), newest_checkpoint=7), Verdict.HANDED_OVER),
        (left(an_exit(75)), Verdict.NO_PROGRESS),
        (left(an_exit(75, newest=500), progress=progress(500), start_step=400), Verdict.HANDED_OVER),
        (left(an_exit(75, newest=500), start_step=400), Verdict.HANDED_OVER),
        (left(an_exit(75), progress=progress(400), start_step=400), Verdict.NO_PROGRESS),
        (left(an_exit(93)), Verdict.DO_NOT_REQUEUE),
        (left(an_exit(1)), Verdict.CRASHED),
        (left(an_exit(-9)), Verdict.CRASHED),
        (left(an_exit(75, superseded_by=3)), Verdict.SUPERSEDED),
        (left(an_exit(1, superseded_by=3)), Verdict.SUPERSEDED),
    ],
)
def test_the_exit_record_decides(evidence: Evidence, verdict: Verdict) -> None:
    assert verdict_of(evidence) is verdict


@pytest.mark.parametrize("asked", ["deadline", "asked to", "SIGUSR2", "SIGTERM"])
@pytest.mark.parametrize(
    ("raw_state", "verdict"),
    [
        ("CANCELLED", Verdict.CANCELLED),
        ("CANCELLED by 33", Verdict.CANCELLED),
        ("TIMEOUT", Verdict.HANDED_OVER),
        ("PREEMPTED", Verdict.HANDED_OVER),
        ("", Verdict.HANDED_OVER),
    ],
)
def test_a_cancel_is_one_in_the_middle_of_a_hand_over_too(asked: str, raw_state: str, verdict: Verdict) -> None:
    ended = an_exit(75, asked=asked, terminated=True)
    assert verdict_of(left(ended, newest_checkpoint=7), raw_state) is verdict


@given(code=st.integers(-64, 255), raw=st.sampled_from(["", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL"]))
def test_the_scheduler_is_not_asked_where_there_is_an_exit_record(code: int, raw: str) -> None:
    assert judge(left(an_exit(code)), gone(raw)) == judge(left(an_exit(code)), gone())


@pytest.mark.parametrize(
    ("raw_state", "verdict"),
    [
        ("TIMEOUT", Verdict.TIMED_OUT),
        ("DEADLINE", Verdict.TIMED_OUT),
        ("PREEMPTED", Verdict.PREEMPTED),
        ("CANCELLED", Verdict.CANCELLED),
        ("OUT_OF_MEMORY", Verdict.CRASHED),
        ("NODE_FAIL", Verdict.NODE_FAILED),
        ("A_NEW_WORD", Verdict.CRASHED),
        ("", Verdict.NODE_FAILED),
    ],
)
def test_without_an_exit_record_the_schedulers_word_decides(raw_state: str, verdict: Verdict) -> None:
    assert verdict_of(left(), raw_state) is verdict


@pytest.mark.parametrize("code", [1, 75, -9, -15])
def test_an_end_that_the_scheduler_made_is_not_the_programs(code: int) -> None:
    ended = left(an_exit(code, asked="SIGTERM"))
    assert verdict_of(ended, "NODE_FAIL") is (Verdict.HANDED_OVER if code == 75 else Verdict.NODE_FAILED)
    verdict, cause = judge(ended, gone("PREEMPTED"))
    assert verdict is (Verdict.HANDED_OVER if code == 75 else Verdict.PREEMPTED)
    assert cause == PREEMPTED


@pytest.mark.parametrize(
    ("log_tail", "verdict"),
    [
        ("step 12", Verdict.NODE_FAILED),
        ("slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=2.batch", Verdict.CRASHED),
        ("slurmstepd-n1: error: *** JOB 20 ON n1 CANCELLED AT 2026-11-20T20:25:59 DUE TO TIME LIMIT ***", "timed out"),
        ("slurmstepd-n1: error: *** JOB 20 ON n1 CANCELLED AT 2026-11-20T20:25:59 DUE TO PREEMPTION ***", "preempted"),
    ],
)
def test_what_the_scheduler_has_forgotten_is_the_programs_where_its_log_says_so(log_tail: str, verdict: str) -> None:
    assert verdict_of(left(log_tail=log_tail)) == verdict


def test_a_job_that_ended_before_its_claim_says_so() -> None:
    verdict, cause = judge(Evidence(), gone("FAILED"))
    assert verdict is Verdict.CRASHED
    assert cause == "it ended before it began (FAILED)"


@pytest.mark.parametrize(
    ("raw_state", "node", "ran_s", "verdict"),
    [
        ("CANCELLED", "n1", 0.0, Verdict.NODE_FAILED),  # a Prolog failed, and no history says who cancelled
        ("CANCELLED by 0", "n1", 40.0, Verdict.NODE_FAILED),  # after a while
        ("CANCELLED", "n1", 40.0, Verdict.CANCELLED),  # while its set-up lines ran
        ("CANCELLED", "n1", None, Verdict.CANCELLED),
        ("CANCELLED by 1000", "n1", 0.0, Verdict.CANCELLED),
        ("CANCELLED by 0", "", 0.0, Verdict.CANCELLED),  # it was waiting
    ],
)
def test_a_cancel_by_the_node_that_could_not_start_the_job_is_no_persons(
    raw_state: str, node: str, ran_s: float | None, verdict: Verdict
) -> None:
    end = gone(raw_state).model_copy(update={"node": node, "ran_s": ran_s})
    assert judge(Evidence(), end)[0] is verdict
    assert judge(left(), end)[0] is Verdict.CANCELLED  # it had begun


def test_the_causes_name_the_code_and_what_the_log_says() -> None:
    assert judge(left(an_exit(-9), log_tail="slurmstepd: error: Detected 1 oom-kill event"), gone())[1] == (
        "out of memory (killed by signal 9)"
    )
    assert judge(left(an_exit(3)), gone())[1] == "exit code 3"
    assert judge(left(an_exit(127, words="the program x could not be started")), gone())[1] == (
        "the program x could not be started (exit code 127)"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "the GPU ran out of memory"),
        ("numpy.core._exceptions._ArrayMemoryError: MemoryError", "out of memory"),
        ("slurmstepd-n1: error: Exceeded job memory limit", "out of memory"),
        ("OSError: [Errno 28] No space left on device", "no space left on the disk"),
        ("OSError: [Errno 122] Disk quota exceeded", "the disk quota is used up"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "a CUDA error"),
        ("mujoco.FatalError: an OpenGL platform library has not been loaded", "the renderer (EGL/OpenGL) failed"),
        ("ValueError: the loss became NaN at step 12", "a value became NaN"),
        ("KeyError: 'nets'", "KeyError: 'nets'"),
    ],
)
def test_known_causes_are_named_and_unknown_ones_quoted(line: str, words: str) -> None:
    assert cause_in(f"Traceback (most recent call last):\n  ...\n{line}\n\n") == words


@pytest.mark.parametrize(
    "line", ["OSError: [Errno 28] No space left on device: '/tmp/cache'", "success=nan", "OSError: Disk quota exceeded"]
)
def test_what_a_program_has_survived_is_not_what_it_ended_of(line: str) -> None:
    tail = f"{line}\n" + "step 1 is done\n" * 400 + "KeyError: 'nets'\n"
    assert len(tail) < LOG_TAIL_BYTES
    assert cause_in(tail) == "KeyError: 'nets'"
    assert disk_words(tail) == ""


FRAMES = {
    "Python": '  File "/home/ann/.venv/lib/python3.11/site-packages/torch/serialization.py", line 850, in save\n'
    "    _save(obj, opened_zipfile, pickle_module, pickle_protocol, _disable_byteorder_record)\n",
    "marked": '  File "/home/ann/train.py", line 8, in <module>\n    save(model)\n    ~~~~^^^^^^^\n',
    "C++": "frame #7: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f1b6a2d9 in libc10.so)\n",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_long_traceback_behind_a_cause_hides_it_not(frame: str) -> None:
    tail = f"OSError: [Errno 28] No space left on device\n{frame * 60}RuntimeError: unexpected pos 64 vs 0\n"
    assert len(tail) > LAST_WORDS
    assert cause_in(tail) == disk_words(tail) == "no space left on the disk"


def test_an_empty_log_has_no_cause() -> None:
    assert cause_in("\n  \n") == ""


@pytest.mark.parametrize("line", ["the gain is negligible", "MUJOCO_GL=egl"])
def test_a_word_that_contains_egl_is_not_a_failed_renderer(line: str) -> None:
    assert cause_in(f"{line}\nKeyError: 'nets'") == "KeyError: 'nets'"


@pytest.mark.parametrize(
    ("evidence", "moved"),
    [
        (left(), False),
        (left(newest_checkpoint=10), True),
        (left(newest_checkpoint=10, start_step=10), False),
        (left(newest_checkpoint=20, start_step=10), True),
        (left(progress=progress(20), start_step=10), True),  # it was killed, and nobody looked
        (left(an_exit(75), progress=progress(20), start_step=10), True),  # its node could not look, or did not
        (left(an_exit(75, newest=None), progress=progress(20), start_step=10), False),
        (left(an_exit(75, newest=10), progress=progress(20), start_step=10), False),
        (left(an_exit(75, newest=20), progress=progress(10), start_step=10), True),
        (left(an_exit(75), newest_checkpoint=20, start_step=10), True),
        (left(progress=progress(10, step=99), start_step=10), False),
    ],
)
def test_progress_is_a_checkpoint_beyond_the_start_and_nothing_less(evidence: Evidence, moved: bool) -> None:
    assert made_progress(evidence) is moved


@pytest.mark.parametrize("code", [0, 75])
def test_a_checkpoint_that_no_successor_finds_is_no_progress_and_the_cause_says_so(code: int) -> None:
    reported = left(an_exit(code, asked="deadline", newest=None), progress=progress(1000, 9000))
    told = "it reports a checkpoint of step 1,000, and none of that number is in checkpoints/"
    assert judge(reported, gone()) == (Verdict.NO_PROGRESS, told)
    assert "reports" not in judge(left(an_exit(code), progress=progress(0, 9000)), gone())[1]


@pytest.mark.parametrize("more", [{"asked": "deadline"}, {"asked": "asked to"}, {"deadline": NOW, "started_at": 0.0}])
def test_a_checkpoint_whose_name_is_not_its_step_is_no_progress_and_is_named(more: dict[str, object]) -> None:
    verdict, cause = judge(left(an_exit(75, newest=None, misnamed="step_1000", **more)), gone())
    assert verdict is Verdict.NO_PROGRESS
    assert cause.endswith("a name must be the step in digits alone, not step_1000")
    assert "step_1000" not in told_to_others(verdict, cause)
    assert verdict_of(left(an_exit(75, newest=None, **more))) is Verdict.HANDED_OVER
    assert verdict_of(left(an_exit(75, newest=500, **more))) is Verdict.HANDED_OVER


@pytest.mark.parametrize("asked", ["deadline", "SIGTERM"])
def test_who_went_on_from_a_checkpoint_and_was_stopped_in_the_middle_of_a_save_has_handed_over(asked: str) -> None:
    ended = an_exit(75, asked=asked, newest=None, misnamed="step_2000")
    assert judge(left(ended, start_step=1000), gone("TIMEOUT")) == (Verdict.HANDED_OVER, asked)
    assert verdict_of(left(ended, start_step=0), "PREEMPTED") is Verdict.NO_PROGRESS


@pytest.mark.parametrize(("lived_s", "verdict"), [(60, Verdict.NO_PROGRESS), (49, Verdict.HANDED_OVER)])
def test_who_leaves_nothing_again_but_such_a_name_after_time_enough_has_changed_its_naming(
    lived_s: float, verdict: Verdict
) -> None:
    times = {"started_at": NOW - 5 - lived_s, "deadline": NOW - 5 - lived_s + 100}
    saved = left(an_exit(75, asked="deadline", newest=None, misnamed="step_2000", **times), start_step=1000)
    judged, cause = judge(saved, gone(), again=True)
    assert (judged, "not step_2000" in cause) == (verdict, verdict is Verdict.NO_PROGRESS)
    assert judge(saved, gone())[0] is Verdict.HANDED_OVER


@pytest.mark.parametrize("code", [0, 75])
def test_a_name_beside_the_checkpoints_is_not_the_fault_of_who_went_on_from_one(code: int) -> None:
    ended = an_exit(code, newest=None, misnamed="model-v2.pt")
    verdict, cause = judge(left(ended, start_step=1000, progress=progress(1000, 9000)), gone())
    assert verdict is Verdict.NO_PROGRESS
    assert "model-v2.pt" not in cause
    assert "saved nothing new" in cause or "left no new checkpoint" in cause


def test_a_kill_after_the_time_was_up_is_the_walltimes() -> None:
    late = {"deadline": NOW - 60, "asked": "deadline"}
    assert verdict_of(left(an_exit(-9, **late))) is Verdict.TIMED_OUT
    assert verdict_of(left(an_exit(-9, **late | {"deadline": NOW + 60}))) is Verdict.CRASHED
    assert verdict_of(left(an_exit(-11, **late))) is Verdict.CRASHED
    assert verdict_of(left(an_exit(-9, **late, words="out of memory"))) is Verdict.CRASHED


def test_a_slurmctld_that_takes_a_job_away_is_not_the_programs_fault() -> None:
    line = "slurmstepd-n1: error: *** REASON: Nodes required for job are DOWN ***"
    killed = left(an_exit(-9), log_tail=f"step 12\n{line}\n")
    assert judge(killed, gone()) == (Verdict.NODE_FAILED, "Slurm killed it: Nodes required for job are DOWN")
    assert verdict_of(left(an_exit(-11), log_tail=line)) is Verdict.CRASHED
    assert verdict_of(left(an_exit(-9), log_tail="slurmstepd: error: Detected 1 oom-kill event(s)")) is Verdict.CRASHED


@pytest.mark.parametrize(("lived_s", "verdict"), [(60, Verdict.HANDED_OVER), (49, Verdict.NO_PROGRESS)])
def test_who_leaves_by_his_own_clock_has_used_at_least_half_of_his_time(lived_s: float, verdict: Verdict) -> None:
    ended = an_exit(75, started_at=NOW - 5 - lived_s, deadline=NOW - 5 - lived_s + 100)
    assert verdict_of(left(ended)) is verdict
    reporting = left(ended, progress=progress(0), start_step=0)  # one that counts its steps has made none
    assert verdict_of(reporting) is Verdict.NO_PROGRESS


def test_a_job_that_slurm_has_forgotten_before_it_began_is_not_the_programs_fault() -> None:
    assert judge(Evidence(), gone())[0] is Verdict.NODE_FAILED
    assert judge(Evidence(log_tail="module: command not found"), gone())[0] is Verdict.CRASHED
    assert judge(Evidence(), gone("FAILED"))[0] is Verdict.CRASHED


def test_a_job_that_left_not_even_its_output_is_not_the_programs_fault() -> None:
    """The batch system makes the files before the script runs: its node does not see the run's folder."""
    nothing = Evidence(has_output=False)
    verdict, cause = judge(nothing, gone("FAILED"))
    assert (verdict, cause) == (Verdict.NODE_FAILED, f"{NOT_SEEN_THERE} (FAILED)")
    assert judge(nothing, gone("FAILED"), disk_full=True)[0] is Verdict.NO_ROOM
    assert judge(nothing, gone("CANCELLED"))[0] is Verdict.CANCELLED
    assert judge(left(has_output=False), gone("FAILED"))[0] is Verdict.CRASHED


ERRNO_28 = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("raw_state", "log_tail", "full", "verdict", "cause"),
    [
        ("FAILED", ERRNO_28, False, Verdict.NO_ROOM, "no space left on the disk"),
        ("FAILED", "Disk quota exceeded", False, Verdict.NO_ROOM, "the disk quota is used up"),
        ("FAILED", "", True, Verdict.NO_ROOM, DISK_FULL),
        ("FAILED", "KeyError: 'nets'", True, Verdict.CRASHED, "KeyError: 'nets'"),
        ("FAILED", "", False, Verdict.CRASHED, "it ended without a word (FAILED)"),
        ("NODE_FAIL", ERRNO_28, False, Verdict.NO_ROOM, "no space left on the disk"),
        ("NODE_FAIL", "", True, Verdict.NO_ROOM, DISK_FULL),
        ("NODE_FAIL", "step 12", True, Verdict.NODE_FAILED, "its node failed"),
        ("OUT_OF_MEMORY", "", True, Verdict.CRASHED, "out of memory"),
    ],
)
def test_a_full_disk_is_the_cause_where_the_job_said_so_or_could_say_nothing(
    raw_state: str, log_tail: str, full: bool, verdict: Verdict, cause: str
) -> None:
    assert judge(left(log_tail=log_tail), gone(raw_state), disk_full=full) == (verdict, cause)


def test_a_program_that_found_no_room_has_not_crashed() -> None:
    full = left(an_exit(1), log_tail="OSError: [Errno 122] Disk quota exceeded")
    assert judge(full, gone("FAILED")) == (Verdict.NO_ROOM, "the disk quota is used up (exit code 1)")


def test_a_job_that_a_restarted_slurmctld_takes_from_its_node_has_not_crashed() -> None:
    killed = left(log_tail="slurmstepd-n1: error: *** REASON: Nodes required for job are DOWN ***")
    assert judge(killed, gone()) == (Verdict.NODE_FAILED, "Slurm killed it: Nodes required for job are DOWN")


def test_a_job_that_found_no_room_for_its_claim_is_told_so_too() -> None:
    before = Evidence(log_tail=ERRNO_28)
    assert judge(before, gone("FAILED"))[1] == "it ended before it began (no space left on the disk)"
    assert judge(Evidence(), gone("FAILED"), disk_full=True)[1] == f"it ended before it began ({DISK_FULL})"


OWN_LINE = "FileNotFoundError: '/home/ann/secret (exit code 5)"


@pytest.mark.parametrize(
    ("evidence", "raw_state", "told"),
    [
        (left(an_exit(1), log_tail=OWN_LINE), "", "exit code 1"),
        (left(an_exit(-11), log_tail=OWN_LINE), "", "killed by signal 11"),
        (left(an_exit(127, words="/home/ann/x could not be started")), "", "exit code 127"),
        (left(an_exit(93), log_tail=OWN_LINE), "", "it asked not to be run again (exit code 93)"),
        (left(log_tail=OWN_LINE), "FAILED", "exit code 5"),  # a line that reads as if we had written it
        (left(log_tail=f"{OWN_LINE}."), "FAILED", "crashed"),
        (left(log_tail="gone: /home/ann"), "FAILED", "crashed"),
        (left(log_tail="a line (of /home/ann)"), "FAILED", "crashed"),
        (Evidence(log_tail=OWN_LINE), "FAILED", "it ended before it began"),
        (left(), "FAILED", "it ended without a word"),
        (left(), "OUT_OF_MEMORY", "out of memory"),
        (left(), "PREEMPTED", "preempted by another job"),
        (left(an_exit(1, superseded_by=3)), "", "attempt 3 had taken over"),
    ],
)
def test_nothing_of_a_jobs_own_last_line_is_told_to_others(evidence: Evidence, raw_state: str, told: str) -> None:
    assert told_to_others(*judge(evidence, gone(raw_state))) == told


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGXFSZ])
def test_a_limit_of_the_kernels_that_ended_a_program_has_words(number: signal.Signals) -> None:
    own = "step 12: loss 0.3"
    named = {judge(left(an_exit(code), log_tail=own), gone())[1].partition(" (")[0] for code in (-number, 128 + number)}
    of_shell = f"job.sh: line 3: 123 {signal.strsignal(number)}       ./train"
    assert named == {judge(left(an_exit(1), log_tail=of_shell), gone())[1].partition(" (")[0]}
    assert named & {own, of_shell, f"killed by signal {number}"} == set()


@pytest.mark.parametrize("words", [words for _, words in CAUSES])
def test_a_cause_that_is_known_is_told_to_others_as_it_is(words: str) -> None:
    for cause in (words, f"{words} (exit code 7)"):
        assert told_to_others(Verdict.CRASHED, cause) == cause
