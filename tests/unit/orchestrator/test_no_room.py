"""A full shared memory and a full disk, told apart by the end of a job's log: the kernel calls both by one name."""

from __future__ import annotations

import pytest
from builders import a_claim, an_exit, gone
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Verdict
from orchestrator.decisions.verdicts import judge

SHM_FULL = "the machine's shared memory (/dev/shm) is full"
ERRNO_28 = "OSError: [Errno 28] No space left on device"
ON_DISK = f"{ERRNO_28}: '/scratch/ann/psm_1'"
OF_TORCH = "RuntimeError: unable to write to file </torch_3118_7>: No space left on device (28)"
OF_PYTHON = f"{ERRNO_28}: '/psm_0ba195b6'"
#: As Python 3.11 and 3.13 tell it.
OF_A_LOCK = f"""\
    sl = self._semlock = _multiprocessing.SemLock(
                         ^^^^^^^^^^^^^^^^^^^^^^^^^
{ERRNO_28}"""
OF_A_LOCK_IN_WHOLE = f"""\
    sl = self._semlock = _multiprocessing.SemLock(
                         ~~~~~~~~~~~~~~~~~~~~~~~~^
        kind, value, maxvalue, self._make_name(),
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        unlink_now)
        ^^^^^^^^^^^
{ERRNO_28}"""
#: What Python 3.11 prints (but for a space) where a worker meets a full /dev/shm of 64 KB: the error is told twice.
IN_A_POOL = """\
multiprocessing.pool.RemoteTraceback:
\"""
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
                    ^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 48, in mapstar
    return list(map(*args))
           ^^^^^^^^^^^^^^^^
  File "/home/ann/fit.py", line 6, in locks
    return [Lock() for _ in range(count)]
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ann/fit.py", line 6, in <listcomp>
    return [Lock() for _ in range(count)]
            ^^^^^^
  File "/usr/lib/python3.11/multiprocessing/context.py", line 68, in Lock
    return Lock(ctx=self.get_context())
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 162, in __init__
    SemLock.__init__(self, SEMAPHORE, 1, 1, ctx=ctx)
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__
    sl = self._semlock = _multiprocessing.SemLock(
                         ^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: [Errno 28] No space left on device
\"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ann/fit.py", line 19, in <module>
    pool.map(locks, [9999])
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 367, in map
    return self._map_async(func, iterable, mapstar, chunksize).get()
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
OSError: [Errno 28] No space left on device
"""
IN_AN_EXECUTOR = """\
concurrent.futures.process._RemoteTraceback:
\"""
Traceback (most recent call last):
  File "/usr/lib/python3.11/concurrent/futures/process.py", line 256, in _process_worker
    r = call_item.fn(*call_item.args, **call_item.kwargs)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ann/fit.py", line 6, in locks
    return [Lock() for _ in range(count)]
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ann/fit.py", line 6, in <listcomp>
    return [Lock() for _ in range(count)]
            ^^^^^^
  File "/usr/lib/python3.11/multiprocessing/context.py", line 68, in Lock
    return Lock(ctx=self.get_context())
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 162, in __init__
    SemLock.__init__(self, SEMAPHORE, 1, 1, ctx=ctx)
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__
    sl = self._semlock = _multiprocessing.SemLock(
                         ^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: [Errno 28] No space left on device
\"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ann/fit.py", line 24, in <module>
    pool.submit(locks, 9999).result()
  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 456, in result
    return self.__get_result()
           ^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 401, in __get_result
    raise self._exception
OSError: [Errno 28] No space left on device
"""


def crashed(log_tail: str) -> Evidence:
    """A program that ended with 1, and its shim could say so."""
    return Evidence(claim=a_claim(), exit=an_exit(1), log_tail=log_tail)


def died(log_tail: str) -> Evidence:
    """A job that left nothing but its log."""
    return Evidence(claim=a_claim(), log_tail=log_tail)


@pytest.mark.parametrize(
    "line",
    [
        OF_TORCH,
        OF_A_LOCK,
        OF_A_LOCK_IN_WHOLE,
        OF_PYTHON,
        f"{ERRNO_28}: '/dev/shm/sem.x'",
        "DataLoader: out of shared memory.",
        IN_A_POOL,
        IN_AN_EXECUTOR,
    ],
)
def test_a_full_shared_memory_is_no_full_disk(line: str) -> None:
    full = (Verdict.CRASHED, f"{SHM_FULL} (exit code 1)")
    assert judge(crashed(f"step 12\n{line}\n"), gone("FAILED")) == full
    assert judge(died(line), gone("FAILED")) == (Verdict.CRASHED, SHM_FULL)
    assert judge(died(line), gone("NODE_FAIL"))[0] is Verdict.NODE_FAILED
    assert judge(died(f"{line}\n{ON_DISK}"), gone("NODE_FAIL"))[0] is Verdict.NO_ROOM


@pytest.mark.parametrize("of_memory", [OF_TORCH, OF_A_LOCK, OF_A_LOCK_IN_WHOLE, IN_A_POOL, IN_AN_EXECUTOR])
@pytest.mark.parametrize(
    "on_disk",
    [
        ON_DISK,
        f"{ERRNO_28}: 'state.pt.tmp'",
        "cp: error writing '/data/x': No space left on device",
        "tar: /data/x: Cannot write: No space left on device",
        "cp: error writing 'ckpt/x': No space left on device",
        "cp: error writing \u2018ckpt/x\u2019: No space left on device",
        "tar: ckpt/x: Cannot write: No space left on device",
        f"{ERRNO_28}: b'state.pt'",
        'thread main panicked: No space left on device (os error 28) at path "/data/.tmp1"',
        "/home/ann/run.sh: line 3: /data/x: No space left on device",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_of_a_full_disk_and_a_full_shared_memory_the_later_one_ended_the_program(of_memory: str, on_disk: str) -> None:
    disk_last, memory_last = f"{of_memory}\nstep 12\n{on_disk}\n", f"{on_disk}\nstep 12\n{of_memory}\n"
    for left in (crashed, died):
        assert judge(left(disk_last), gone("FAILED"))[0] is Verdict.NO_ROOM
        assert judge(left(memory_last), gone("FAILED"))[0] is Verdict.CRASHED


NAMELESS = (
    ERRNO_28,
    "Exception ignored in: <Finalize object>, No space left on device",
    "RuntimeError: write failed: No space left on device (28)",
    "multiprocessing.pool.MaybeEncodingError: Reason: 'OSError(28, 'No space left on device')'",
    "/home/ann/run.sh: line 3: echo: write error: No space left on device",
    "2026/07/01 12:00:00 and/or: No space left on device",
    "(/home/ann/fit.py:19) ERROR [Errno 28] No space left on device",
)


@given(st.sampled_from([OF_TORCH, OF_A_LOCK, OF_PYTHON]), st.lists(st.sampled_from([*NAMELESS, "step 12"])))
def test_a_line_that_names_no_file_says_nothing_of_a_disk_where_shared_memory_was_full(
    of_memory: str, lines: list[str]
) -> None:
    log_tail = "\n".join([of_memory, *lines])
    for left in (crashed, died):
        verdict, cause = judge(left(log_tail), gone("FAILED"))
        assert (verdict, cause.startswith(SHM_FULL)) == (Verdict.CRASHED, True)
    assert judge(died(log_tail), gone("NODE_FAIL"))[0] is Verdict.NODE_FAILED


@pytest.mark.parametrize("line", NAMELESS)
def test_where_shared_memory_was_not_full_it_is_the_disk_with_or_without_a_name(line: str) -> None:
    assert judge(crashed(f"step 12\n{line}\n"), gone("FAILED"))[0] is Verdict.NO_ROOM


JOBLIB = """\
/lib/joblib/helpers.py:46: UserWarning: [Errno 28] No space left on device.  joblib will operate in serial mode
  warnings.warn('%s.  joblib will operate in serial mode' % (e,))
"""


def test_what_joblib_warns_of_is_no_cause() -> None:
    for left in (crashed, died):
        for words in ("", "KeyError: 'x'\n"):
            assert judge(left(JOBLIB + words), gone("FAILED")) == judge(left(words), gone("FAILED"))
        assert judge(left(f"{JOBLIB}{ON_DISK}\n"), gone("FAILED"))[0] is Verdict.NO_ROOM
        assert judge(left(f"{OF_TORCH}\n{JOBLIB}"), gone("FAILED"))[0] is Verdict.CRASHED
