"""A training whose environments draw themselves: its episodes are played again elsewhere, and drawn there."""

from __future__ import annotations

import io
from contextlib import contextmanager

import numpy as np
import pytest
from daemons import PATIENCE_S, wait_for

pytest.importorskip("torch")

from PIL import Image
from vector_bytes import as_bytes

from anchorleg.live.batches import AGAIN, FACTS, JPEG, checked
from anchorleg.live.ring import RingReader
from anchorleg.live.wanted import FILE, Asking, Wish
from trainer.config.suites import Gymnasium
from trainer.envs import channel
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.envs.workers import spawn_worker
from trainer.live.reruns import PROGRAM
from trainer.live.tap import Given, Tap

pytestmark = pytest.mark.trainer
ENVS, HORIZON, BATCH = 3, 12, 40


def suite_of(name, **kwargs):
    return SuiteRef(Gymnasium(id=f"odd_envs:{name}", tasks=(name,), horizon=HORIZON, kwargs=kwargs))


class Studio:
    """A training of random actions: `go` makes some steps; `seen`: what was read of its ring, checked."""

    def __init__(self, folder, envs, suite):
        self.envs, self.step, self.rng = envs, 0, np.random.default_rng(4)
        self.asking = Asking(folder / FILE)
        self.asking.renew((Wish(0, "any", 30),))
        given = Given(folder / FILE, folder / "live", 0, 1, ("line",), tells_success=False, drawn_by_itself=suite)
        self.tap = Tap(envs, given)
        self.reader, self.seen, self.bytes, self.said = RingReader(folder / "live/any.ring"), [], [], []
        wait_for(lambda: self.tap._wanted, "the tap hears of the wish")

    def go(self, steps=BATCH, *, watched=True):
        for _ in range(steps):
            actions = self.rng.uniform(-1, 1, (ENVS, 1)).astype(np.float32)
            found = self.envs.step(actions)
            self.step += ENVS
            self.bytes.append(as_bytes(found))
            if watched:
                self.tap.after(self.step, found.next_task)

    def until(self, holds):
        """Train on, as fast as a person looks, until `holds()`."""

        def held():
            self.go()
            self.asking.renew((Wish(0, "any", 30),))
            self.tap.tell(self.said.append)
            self.seen += [(cell.kind, *checked(cell.kind, cell.payload)) for cell in self.reader.newer()]
            return holds()

        wait_for(held, "what is to be seen", PATIENCE_S)


@contextmanager
def studio(folder, suite, workers=0):
    with VectorEnv(VectorSpec(suite, ENVS, 3), workers) as envs:
        envs.reset()
        made = Studio(folder, envs, suite.as_json())
        try:
            yield made
        finally:
            made.tap.close()


def drawing(one):
    """The process that draws."""
    lanes = one.tap._reruns._lanes
    return lanes["any"]._process if lanes else None


@pytest.mark.parametrize("workers", [0, 2])
def test_whole_episodes_are_drawn_and_no_bit_of_the_training_differs(tmp_path, workers):
    suite = suite_of("Line")
    with studio(tmp_path, suite, workers) as one:
        one.until(lambda: len({header["episode"] for kind, header, _ in one.seen if kind == JPEG}) > 1)
        process = drawing(one)
        pictures = [(header, body) for kind, header, body in one.seen if kind == JPEG]
    wait_for(lambda: process.poll() is not None, "its end")
    assert not one.said
    for header, body in pictures:
        assert header["origin"] == AGAIN
        assert 0 < header["step"] <= HORIZON
        assert header["facts"]["trained steps"] > 0
        assert Image.open(io.BytesIO(body)).size == (63, 48)
    assert len({body for _, body in pictures}) > 1
    with VectorEnv(VectorSpec(suite, ENVS, 3), workers) as envs:
        envs.reset()
        rng = np.random.default_rng(4)
        for expected in one.bytes:
            assert as_bytes(envs.step(rng.uniform(-1, 1, (ENVS, 1)).astype(np.float32))) == expected


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"fault": "exits"}, "its process has ended"),
        ({"fault": "raises"}, "no paint"),
        ({"fault": "moves"}, "does not come out as it was"),
    ],
    ids=lambda value: value.get("fault", "") if isinstance(value, dict) else "",
)
def test_drawing_that_goes_wrong_is_said_once_and_facts_are_shown(tmp_path, kwargs, words):
    with studio(tmp_path, suite_of("Painter", **kwargs)) as one:
        one.until(lambda: one.said)
        one.seen.clear()
        one.until(lambda: len([1 for kind, *_ in one.seen if kind == FACTS]) > 1)
        assert {kind for kind, *_ in one.seen} <= {FACTS, JPEG}
    [sentence] = one.said
    assert words in sentence
    assert sentence.endswith("numbers are shown")


def test_it_ends_with_the_last_watcher(tmp_path):
    with studio(tmp_path, suite_of("Line")) as one:
        one.until(lambda: drawing(one))
        process = drawing(one)
        one.asking.withdraw()
        wait_for(lambda: (one.go(1), process.poll() is not None)[1], "its end")


def test_it_ends_in_the_middle_of_an_episode_with_a_training_that_is_killed(tmp_path):
    suite = SuiteRef(Gymnasium(id="odd_envs:Line", tasks=("line",), kwargs={"length": 10**6}))
    process, line = spawn_worker(program=PROGRAM)
    setup = {"suite": suite.as_json(), "folder": str(tmp_path), "attempt": 1, "tasks": ["line"], "tells": False}
    line.send(channel.SETUP, {**setup, "lane": "any"})
    line.receive(PATIENCE_S)
    # Pushes of nothing, 100 s of them at its natural speed.
    actions, env = np.full((2_000, 1), -0.5, np.float32), suite.open().watched(0)
    env.reset(1)
    total = sum(env.step(action).reward for action in actions[:-1])
    about = {"task": 0, "episode": 0, "fps": 30, "seed": 1, "total": total, "about": {}}
    line.send(channel.START, about, {"actions": actions})
    answer = line.receive(PATIENCE_S)
    assert answer.op == channel.DOING, answer.meta
    line.close()
    assert process.wait(PATIENCE_S) == 0
