"""What a contributor with a restricted key can do to a real training of an ordinary account's: to the rows of others,
and to the learner's speed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from accounts import Account
from daemons import PATIENCE_S, wait_for
from needs import need
from sshd import missing_sshd_parts, throw_away_sshd

pytest.importorskip("metaworld")

import numpy as np
from segments_of import played
from slot_digest import newest

from syncd import store
from syncd.access.gate import authorized_keys_line
from syncd.transports import open_transport
from syncd.wire.session import Session
from trainer.checkpoints.checkpoint import read_manifest
from trainer.checkpoints.resume import load_exact
from trainer.history.read import read
from trainer.sharing.journal import Taken, entries
from trainer.sharing.judge import SMALLEST
from trainer.sharing.segment import Segment, encode, name_of

pytestmark = [pytest.mark.trainer, pytest.mark.long]
HORIZON, SEED = 100, 42  # the seed is that of `played`
#: The run's own ring; all others' hold three sevenths of it, here 6,000 rows.
BUFFER = 14_000
SETTINGS = (
    'tasks=["reach-v3"]', f"horizon={HORIZON}", f"seed={SEED}", f"buffer_size={BUFFER}", "total_steps=10000000",
    "num_envs=2", "num_workers=0", "random_steps=200", "publish_interval=50", "checkpoint_interval=1000",
    "metrics_interval=500", "evaluation_goals=0", "keep_checkpoints=1000",
)  # fmt: skip


class Training:
    """A training that takes experience, at whose folder contributors come in with restricted keys."""

    def __init__(self, owner: Account | None, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        python, self.syncd = sys.executable, str(Path(sys.executable).parent / "syncd")
        prefix: list[str] = []
        if owner is not None:
            python, self.syncd, prefix = str(owner.python), str(owner.syncd()), ["runuser", "-u", owner.name, "--"]
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        where = ["--run-dir", str(folder / "run"), "--shared-dir", str(folder / "shared"), "--accept-contributions"]
        with open(scratch / "training.txt", "w") as out:
            self.child = subprocess.Popen(
                [*prefix, python, "-m", "trainer", "train", "--preset", "tiny", *words, *where],
                cwd=folder, env=owner.env if owner else None, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        wait_for(self._is_open, "the first policy")
        (self.place,) = store.Shared(folder / "shared").slots()

    def _is_open(self) -> bool:
        assert self.child.poll() is None, (self.scratch / "training.txt").read_text()
        places = store.Shared(self.folder / "shared").slots()
        return bool(places) and store.newest(places[0]) is not None

    @property
    def slot(self) -> Path:
        return self.folder / "run" / "slots" / "0"

    def segments(self, seed: int) -> Iterator[Segment]:
        """Honest ones by the newest policy's name."""
        manifest = store.newest(self.place)
        assert manifest is not None
        return played(
            run_id=self.place.run_id, tasks=("reach-v3",), horizon=HORIZON, seed=seed,
            version=(manifest.attempt, manifest.seq),
        )  # fmt: skip

    def taken(self, who: str) -> int:
        """How many of this contributor's segments are in the replay."""
        attempts = (self.slot / "attempts").iterdir()
        return sum(isinstance(one, Taken) and one.who == who for attempt in attempts for one in entries(attempt))

    def give(self, line: Session, who: str, segments: list[Segment]) -> None:
        """Send them, and wait until their rows are in the replay."""
        before, files = self.taken(who), []
        for segment in segments:
            data = encode(segment)
            files.append(self.scratch / name_of(data))
            files[-1].write_bytes(data)
        receipts = line.send([(path, self.place.run_id, 0) for path in files])
        assert all(receipt.stored for receipt in receipts), receipts
        wait_for(lambda: self.taken(who) == before + len(segments), f"the rows of {who}")

    def end(self) -> None:
        """As a job's end does; it saves."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self.child.wait(PATIENCE_S)


@pytest.fixture
def training(ordinary_account: Account | None, tmp_path: Path) -> Iterator[Training]:
    folder = (ordinary_account.home if ordinary_account else tmp_path) / "training"
    folder.mkdir()
    if ordinary_account:
        os.chown(folder, ordinary_account.uid, ordinary_account.uid)
    training = Training(ordinary_account, folder, tmp_path)
    yield training
    training.end()
    if ordinary_account:
        shutil.rmtree(folder)


@pytest.fixture
def connect(ordinary_account: Account | None, training: Training) -> Iterator[Callable[[str], Session]]:
    """A contributor's line, by a key that may do no more."""
    need("a real sshd", missing_sshd_parts())
    lines: list[Session] = []
    shared = str(training.folder / "shared")
    with throw_away_sshd(account=ordinary_account) as server:

        def make(who: str) -> Session:
            laptop = server.new_client(who, options=None)
            with open(server.authorized_keys, "a", encoding="utf-8") as file:
                file.write(authorized_keys_line(who, laptop.public_key, [training.syncd], shared) + "\n")
            remote = server.remote(laptop, shared, command=None)
            lines.append(open_transport(remote, client=who))
            return lines[-1]

        yield make
        for line in lines:
            line.close()


def with_denormals(segment: Segment) -> Segment:
    """Zeros of the observations as numbers that are computed many times slower."""
    return replace(segment, obs=np.where(segment.obs == 0, np.float32(1e-40), segment.obs))


def test_a_loud_contributor_of_denormals_neither_pushes_anybody_out_nor_leaves_one(
    training: Training, connect: Callable[[str], Session]
) -> None:
    quiet, loud = connect("quiet"), connect("loud")
    honest, many = training.segments(1), training.segments(2)
    training.give(quiet, "quiet", [next(honest) for _ in range(4)])
    for _ in range(4):
        training.give(loud, "loud", [with_denormals(next(many)) for _ in range(16)])
        training.give(quiet, "quiet", [next(honest)])
    assert (training.taken("quiet"), training.taken("loud")) == (8, 64)
    training.end()
    checkpoint = newest(training.slot)
    _, experience = load_exact(checkpoint, training.slot, read_manifest(checkpoint))
    assert experience is not None
    assert experience.others is not None
    others = experience.others
    assert (others.rows_of("quiet"), others.rows_of("loud")) == (8 * HORIZON, BUFFER * 3 // 7 // 2)
    for name, rows in others.ring.arrays().items():
        if rows.dtype == np.float32:
            assert not ((rows != 0) & (np.abs(rows) < SMALLEST)).any(), name
    shares = [row["contributed"]["share"] for row in read(training.slot) if row.get("contributed")]
    assert 0 < max(shares) <= 0.3
