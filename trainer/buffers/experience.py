"""What an off-policy algorithm learns from: its own rows and, bounded, others', other slots' and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainer.buffers.contributed import COMPARED, MAX_SHARE, Contributed, group_capacity_of, parts, pays
from trainer.buffers.demonstrated import Demonstrated
from trainer.buffers.frames import FrameReplay, keeps_frames
from trainer.buffers.replay import Replay, shares
from trainer.buffers.rows import STEPS, Batch, fields_of, joined, with_steps
from trainer.config.settings import MOST_FOREIGN
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F64, Spaces
from trainer.errors import DamagedCheckpointError
from trainer.state import State
from trainer.streams import RandomStream, generator

CPU = torch.device("cpu")


class Experience:
    """`own` rows, and `others`' and other slots' (`peers`), None until the first of them; `demos`, None where the
    training has none, laid down by who begins an attempt. Each ring has a random stream of its own, so one that is
    empty changes nothing. `state` has all but the rows, which are written as they come (`trainer.checkpoints.rows`).
    `peer_share`: the most of a batch that other slots' rows make up. `given`: slot → segments and transitions that it
    ever gave.

    Where frames are kept (`trainer.buffers.frames`), it is told whole steps by `observe`, sums them up itself, and has
    nothing of others; else rows by `add`, each of which says of how many steps it is where that may be several.
    """

    def __init__(self, training: Training, spaces: Spaces, device: torch.device = CPU) -> None:
        """`device`: the learner's. Errors: RuntimeError (out of memory)."""
        settings, tasks, seed = training.off_policy, len(training.env.tasks), training.seed
        self.own: Replay | FrameReplay
        if keeps_frames(spaces, training.network):
            gamma: float = settings.gamma if settings.sums_steps else 1.0  # type: ignore[attr-defined]
            self.own = FrameReplay(settings.buffer_size, tasks, spaces, settings.steps_summed, gamma)
        else:
            fields = with_steps(fields_of(spaces)) if settings.sums_steps else fields_of(spaces)
            self.own = Replay(settings.buffer_size, tasks, fields, device if training.replay_on == "device" else None)
        self.others: Contributed | None = None
        self.peers: Contributed | None = None
        self.peer_share = training.group.share
        self.given: dict[str, list[int]] = {}
        self.demos = Demonstrated(settings, seed) if settings.demos is not None else None
        self._shape = settings.buffer_size, tasks, seed
        self._sampling = generator(seed, RandomStream.SAMPLING)

    def _of_group(self, capacity: int) -> Contributed:
        """For rows of other slots, with a random stream of their own."""
        return Contributed(*self._shape, self.own.fields, capacity=capacity, stream=RandomStream.GROUP_SAMPLING)

    @property
    def ring_rows(self) -> int:
        """Others' rows now."""
        return self.others.ring_rows if self.others is not None else 0

    @property
    def is_ready(self) -> bool:
        """Whether a batch can be drawn."""
        return self.own.is_ready

    def add(self, task: npt.NDArray[np.integer], rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append the run's own transitions, where whole ones are kept."""
        assert isinstance(self.own, Replay)  # noqa: S101 - else `observe`
        self.own.add(task, rows)

    def observe(self, transition: Transition) -> None:
        """Append a step of all environments, where frames are kept."""
        assert isinstance(self.own, FrameReplay)  # noqa: S101 - else `add`
        self.own.add(transition)

    def welcome(self) -> Contributed:
        """The ring of others' rows, made where there is none yet. Where frames are kept nobody sends any."""
        if self.others is None:
            self.others = Contributed(*self._shape, self.own.fields)
        return self.others

    def join(self) -> Contributed:
        """The ring of other slots' rows, made where there is none yet; as `welcome`."""
        if self.peers is None:
            buffer_size, tasks, _ = self._shape
            room = group_capacity_of(buffer_size, tasks, self.peer_share)  # which a resume may have changed
            self.peers = self._of_group(room)
        return self.peers

    def pays(self, task: int, reward: npt.NDArray[np.float32]) -> float | None:
        """How rows of `task` that pay `reward` [T] stand beside the run's own newest: `trainer.buffers.contributed`.
        None: there are none of these.
        """
        if isinstance(self.own, FrameReplay) or not self.own.counts[task]:
            return None
        own = self.own.newest(task, COMPARED, "reward")
        if STEPS in self.own.fields:
            own = own / self.own.newest(task, COMPARED, STEPS)
        return pays(reward, own)

    def sample(self, size: int) -> Batch:
        """A batch: own rows, a bounded share of other slots' and of others', and one of demonstrations; of each task
        that has rows the same number, and in all half of it own rows at least.

        Errors: ValueError where there is no row.
        """
        counts = self.own.deal(size)
        left, beside, shown = counts, [], None
        if self.peers is not None and self.peers.ring_rows:
            taken = self.peers.part_of(left, self.own.sizes, self.peer_share)
            left = left - taken.sum(axis=0)
            beside.append(self.peers.drawn(taken))
        if self.others is not None and self.others.ring_rows:
            taken = self.others.part_of(left, self.own.sizes, share_of_others(1 - int(left.sum()) / size))
            left = left - taken.sum(axis=0)
            beside.append(self.others.drawn(taken))
        if self.demos is not None:
            shown = self.demos.pick(part := self.demos.part_of(counts, left))
            left = left - part
        if isinstance(self.own, FrameReplay):
            batch = self.own.pick(left, self._sampling)
        else:
            batch = self.own.gathered([self.own.drawn(left, self._sampling), *beside])
        return batch if shown is None else joined(batch, shown)

    def others_row(self, size: int) -> dict[str, Any]:
        """For the row of metrics: others' rows, their share of a batch of `size`, how old their policies were, and
        which part of its share each contributor gets (the mean over the tasks).
        """
        if self.others is None:
            return {}
        counts, of_peers = self._counts(size), 0.0
        if self.peers is not None:
            taken = self._wanted(self.peers, counts, self.peer_share)
            counts, of_peers = counts - taken, float(taken.sum()) / size
        row = _row(self.others, self._wanted(self.others, counts, share_of_others(of_peers)), size)
        return {**row, "weight": {who: round(float(self.others.weights_of(who).mean()), 4) for who in self.others.paid}}

    def group_row(self, size: int) -> dict[str, Any]:
        """As `others_row`, of the other slots' rows; `group_rows`: those of each slot."""
        peers = self.peers
        if peers is None:
            return {}
        of_each = {slot: peers.rows_of(slot) for slot in sorted(peers.sources)}
        wanted = self._wanted(peers, self._counts(size), self.peer_share)
        return {**_row(peers, wanted, size), "group_rows": of_each}

    def _counts(self, size: int) -> F64:
        """How many rows of each task a batch of `size` has, [K]; none while there is none of our own."""
        if not self.own.is_ready:
            return np.zeros(len(self.own.sizes))
        return shares(size, self.own.sizes, self.own.turn)[0].astype(np.float64)

    def _wanted(self, ring: Contributed, counts: F64, share: float) -> F64:
        """How many of `counts` [K] come from `ring`, on average, [K]."""
        wanted: F64 = parts(counts, self.own.sizes, ring.ring_sizes, share).sum(axis=0)
        return wanted

    def state(self) -> State:
        """Counts and random streams."""
        return State(
            {},
            {
                "counts": self.own.counts.tolist(),
                "turn": self.own.turn,
                "sampling": self._sampling.bit_generator.state,
                "others": self.others.state_dict() if self.others is not None else None,
                **({"stands": self.own.state()} if isinstance(self.own, FrameReplay) else {}),
                **({"peers": self._of_peers(self.peers)} if self.peers is not None else {}),
                **({"demos": self.demos.state_dict()} if self.demos is not None else {}),
            },
        )

    def load(self, state: State) -> None:
        """As `state` left it; the rows are still to be put back. Errors: DamagedCheckpointError."""
        saved = state.numbers
        self.own.counts = np.array(saved["counts"], np.int64)
        self.own.turn = saved["turn"]
        self._sampling.bit_generator.state = saved["sampling"]
        if isinstance(self.own, FrameReplay):
            if "stands" not in saved:
                raise DamagedCheckpointError("damaged.no-frames")
            self.own.load(saved["stands"])
        if self.demos is not None:
            self.demos.load(saved["demos"])
        if saved["others"] is not None:
            self.others = Contributed(*self._shape, self.own.fields)
            self.others.put_back(saved["others"])
        if (peers := saved.get("peers")) is not None:
            self.given = {slot: list(counts) for slot, counts in peers["given"].items()}
            self.peers = self._of_group(peers["capacity"])
            self.peers.put_back(peers)

    def _of_peers(self, peers: Contributed) -> dict[str, Any]:
        given = {slot: list(counts) for slot, counts in self.given.items()}
        return {**peers.state_dict(), "capacity": peers.capacity, "given": given}


def _row(ring: Contributed, wanted: F64, size: int) -> dict[str, Any]:
    """For the row of metrics, where `wanted` [K] rows of a batch of `size` come from `ring`."""
    return {"rows": ring.ring_rows, "share": round(float(wanted.sum()) / size, 4), **ring.lag_row()}


def share_of_others(of_peers: float) -> float:
    """The most of what is left of a batch that contributors' rows make up, where other slots' are `of_peers` of it: own
    rows stay one half of the batch at least.
    """
    return max(0.0, min(MAX_SHARE, (MOST_FOREIGN - of_peers) / (1 - of_peers)))
