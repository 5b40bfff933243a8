"""A full shared memory and a full disk, told apart by the end of a job's log: the kernel calls both by one name."""

from __future__ import annotations

import pytest
from builders import a_claim, an_exit, gone

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Verdict
from orchestrator.decisions.verdicts import judge

ERRNO_28 = "OSError: [Errno 28] No space left on device"
ON_DISK = f"{ERRNO_28}: '/scratch/ann/psm_1'"
#: As torch, Python's shared memory and joblib tell it.
OF_MEMORY = (
    "RuntimeError: unable to write to file </torch_3118_7>: No space left on device (28)",
    f"{ERRNO_28}: '/psm_0ba195b6'",
    f"{ERRNO_28}: '/dev/shm/sem.x'",
    "DataLoader: out of shared memory.",
    f"UserWarning: {ERRNO_28}.  joblib will operate in serial mode",
)


@pytest.mark.parametrize("line", OF_MEMORY)
def test_a_full_shared_memory_is_no_full_disk(line: str) -> None:
    crashed = Evidence(claim=a_claim(), exit=an_exit(1), log_tail=f"step 12\n{line}\n")
    died = Evidence(claim=a_claim(), log_tail=line)
    for left in (crashed, died):
        verdict, cause = judge(left, gone("FAILED"))
        assert (verdict, "/dev/shm" in cause) == (Verdict.CRASHED, True)
    assert judge(died, gone("NODE_FAIL"))[0] is Verdict.NODE_FAILED
    assert judge(died.model_copy(update={"log_tail": f"{line}\n{ON_DISK}"}), gone("NODE_FAIL"))[0] is Verdict.NO_ROOM


@pytest.mark.parametrize(
    "line", [ERRNO_28, ON_DISK, "tar: x: Cannot write: No space left on device", "Disk quota exceeded"]
)
def test_everything_else_is_the_disk(line: str) -> None:
    left = Evidence(claim=a_claim(), exit=an_exit(1), log_tail=f"step 12\n{line}\n")
    assert judge(left, gone("FAILED"))[0] is Verdict.NO_ROOM
