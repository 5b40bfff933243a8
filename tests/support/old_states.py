"""`python -P old_states.py relay|mirror FOLDER`: leave a run, or a laptop's mirror, as it lies between two commands.

What they do is done by the packages and the `tests/support` that are on the PYTHONPATH, also those of another commit:
`tests/fixtures/checkpoints/make.py` calls it so. Both states are at rest: no process of theirs is left.

relay: three slots of the counting program. Slot 0 stands at step 20, slot 1's first program was killed and its second
job stands there too, slot 2 is paused; the run is stopped. mirror: `shared` with two versions of a policy, `laptop`
that has pulled them, has sent one segment, heard that it was accepted, and has one that waits.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

HELD, TOTAL, SLOTS = 20, 60, 3


def relay(folder: Path) -> None:
    from relay import Relay

    made = Relay.make(folder / "toy", total=TOTAL, slots=SLOTS, held_at=HELD)
    try:
        controller = made.spawn("start")
        for slot in range(SLOTS):
            made.wait_for_step(HELD, slot)
        (one,) = [pid for pid in made.programs() if b"ANCHORLEG_SLOT=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
        os.kill(one, signal.SIGKILL)
        made.wait_for(lambda: 1 in made.attempts(1), "the next job of slot 1")
        made.wait_for(lambda: made.journal(1)[-1] == (1, HELD), "what the killed one had not saved")
        assert made.run("pause", "2").code == 0
        made.wait_for((made.attempt_dir(0, 2) / "exit.json").exists, "the end of slot 2")
        made.wait_for(lambda: made.status()["slots"][2]["job_id"] is None, "the controller to see it")
        stopped = made.run("stop")
        assert stopped.code == 0, stopped.words
        assert made.ended(controller) == 0
        made.wait_for_supervisors()
        made.release()
        for path in (*made.folder.glob("output-*.txt"), made.folder / "status.json"):
            path.unlink(missing_ok=True)
    finally:
        made.clean_up()


def mirror(folder: Path) -> None:
    from policies import RUN, publish_one

    from syncd.commands import default_name
    from syncd.outbox import Outbox
    from syncd.shared.inbox import Inbox
    from syncd.store import Shared

    shared, laptop = Shared(folder / "shared"), folder / "laptop"
    (shared.path / "v1").mkdir(parents=True)
    publish_one(shared, 1, 1)
    _syncd(folder, "pull", str(shared.path), str(laptop))
    assert Outbox(laptop).offer(RUN, 0, b"one")
    _syncd(folder, "push", str(shared.path), str(laptop))
    inbox = Inbox.of(shared, default_name())
    inbox.write_verdict(hashlib.sha256(b"one").hexdigest(), accepted=True, now=1.0)
    publish_one(shared, 1, 2)
    _syncd(folder, "bidirectional", str(shared.path), str(laptop))
    assert Outbox(laptop).offer(RUN, 0, b"two")


def _syncd(folder: Path, *words: str) -> None:
    environment = {**os.environ, "HOME": str(folder / ".home"), "XDG_CONFIG_HOME": str(folder / ".home")}
    subprocess.run([sys.executable, "-P", "-m", "syncd", *words], env=environment, check=True, timeout=600)


if __name__ == "__main__":
    with contextlib.chdir(sys.argv[2]):
        {"relay": relay, "mirror": mirror}[sys.argv[1]](Path(sys.argv[2]))
