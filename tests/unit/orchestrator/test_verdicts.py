"""How an attempt ended, and why: a table of what it left and what the scheduler says, and the causes in a log."""

from __future__ import annotations

import signal

import pytest
from builders import a_claim, a_job, an_exit, gone
from hypothesis import given
from hypothesis import strategies as st
from slot_text import evidence_of, fields_of, rows_of, words_of

from orchestrator.decisions.evidence import Evidence, Exit
from orchestrator.decisions.verdicts import (
    LAST_WORDS,
    cause_in,
    disk_words,
    judge,
    told_to_others,
)
from orchestrator.run.evidence import LOG_TAIL_BYTES

VERDICTS = [(*row, "", "", "")[:6] for row in rows_of("verdicts.txt")]


def left(exit_: Exit | None = None, **more: object) -> Evidence:
    return Evidence.model_validate({"claim": a_claim(), "exit": exit_, **more})


@pytest.mark.parametrize(
    ("says", "of_job", "known", "verdict", "cause", "told"), VERDICTS, ids=[v[0] for v in VERDICTS]
)
def test_an_end_and_its_cause(says: str, of_job: str, known: str, verdict: str, cause: str, told: str) -> None:
    raw, *words = words_of(known) or ["-"]
    more = fields_of([word for word in words if "=" in word])
    of_us = {name: more.pop(name) for name in ("cancelled_at", "cancelled_for") if name in more}
    stalled_s = more.pop("stalled_s", None)
    end = gone(raw.strip('"').removeprefix("-")).model_copy(update=more)
    where = {"stalled_s": stalled_s, "disk_full": "full" in words}
    judged, why = judge(evidence_of(of_job), end, a_job(**of_us), **where)
    assert str(judged).replace(" ", "-") == verdict
    assert why == cause or not cause or (cause[0] == "~" and cause[1:] in why)
    assert not told or told_to_others(judged, why) == told


@pytest.mark.parametrize(("of_job", "moved"), [tuple(row) for row in rows_of("progress.txt")])
def test_progress_is_a_checkpoint_beyond_the_start_and_nothing_less(of_job: str, moved: str) -> None:
    assert evidence_of(of_job).made_progress is (moved == "yes")


@given(code=st.integers(-64, 255), raw=st.sampled_from(["", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL"]))
def test_the_scheduler_is_not_asked_where_there_is_an_exit_record(code: int, raw: str) -> None:
    assert judge(left(an_exit(code)), gone(raw)) == judge(left(an_exit(code)), gone())


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


@pytest.mark.parametrize("line", ["the gain is negligible", "MUJOCO_GL=egl"])
def test_a_word_that_contains_egl_is_not_a_failed_renderer(line: str) -> None:
    assert cause_in(f"{line}\nKeyError: 'nets'") == "KeyError: 'nets'"


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGXFSZ])
def test_a_limit_of_the_kernels_that_ended_a_program_has_words(number: signal.Signals) -> None:
    own = "step 12: loss 0.3"
    named = {judge(left(an_exit(code), log_tail=own), gone())[1].partition(" (")[0] for code in (-number, 128 + number)}
    of_shell = f"job.sh: line 3: 123 {signal.strsignal(number)}       ./train"
    assert named == {judge(left(an_exit(1), log_tail=of_shell), gone())[1].partition(" (")[0]}
    assert named & {own, of_shell, f"killed by signal {number}"} == set()
