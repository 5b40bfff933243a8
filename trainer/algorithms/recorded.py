"""How a learner's updates get to its device: kernel by kernel, or on a GPU recorded once and replayed.

An update of small nets is some 200 kernels of a few microseconds, and Python takes longer to launch each than the GPU
to run it. A CUDA graph ("CUDA Graphs" in torch's notes) launches all of them at once. What it replays are addresses,
so inputs are copied to where they lay when it was recorded, and results are copied away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms import mtsac
from trainer.algorithms.inputs import Inputs, prepare
from trainer.algorithms.mtsac import Learner
from trainer.buffers.replay import FIELDS, Batch
from trainer.config import Training

#: The names of both ways, as a checkpoint's `numeric` has them.
KERNELS, GRAPH = "kernels", "graph"
#: Updates made before recording, as torch's notes have it: libraries choose and allocate, Adam makes its state. They
#: are updates like any other.
WARM_UP = 3

#: Recorded updates that must leave the bits of others before a training makes any: a moment, at each start.
CHECKED = 5

#: Records what a function does without doing it: (how to do it, the tensor that is then the result).
Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
#: As much of CUDA's own words as a sentence can bear.
_QUOTE = 160


def record_cuda_graph(update: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """`update` as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        measured = update()
    return graph.replay, measured


@dataclass(frozen=True)
class _Recording:
    """An update of what lies in `inputs`, which leaves its metrics in `measured`."""

    inputs: Inputs
    play: Callable[[], None]
    measured: Tensor

    def replay(self, inputs: Inputs) -> Tensor:
        """The update, of these `inputs`."""
        for field in fields(Inputs):
            getattr(self.inputs, field.name).copy_(getattr(inputs, field.name))
        self.play()
        return self.measured.clone()


class Updates:
    """Makes the updates of `learner`: by `KERNELS`, or by a `GRAPH` after the first few.

    A learner that is loaded afterwards (`mtsac.load_rest`) leaves the recording: load first.
    """

    def __init__(self, learner: Learner, way: str = KERNELS, record: Record = record_cuda_graph) -> None:
        self._learner = learner
        self._way = way
        self._record = record
        self._made = 0
        self._recording: _Recording | None = None

    def update(self, batch: Batch) -> Tensor:
        """One update. Returns `mtsac.METRICS` as a tensor [5] on the device."""
        learner = self._learner
        if self._way == KERNELS:
            return mtsac.update(learner, batch)
        inputs = prepare(batch, learner.noise, learner.device)
        if self._made < WARM_UP:
            self._made += 1
            return self._beside(inputs)
        if self._recording is None:
            places = Inputs(*(getattr(inputs, field.name).clone() for field in fields(Inputs)))
            self._recording = _Recording(places, *self._record(lambda: mtsac.learn(learner, places)))
        return self._recording.replay(inputs)

    def _beside(self, inputs: Inputs) -> Tensor:
        """An update on a stream of its own, where work that is to be recorded must have been done before."""
        if self._learner.device.type != "cuda":
            return mtsac.learn(self._learner, inputs)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            measured = mtsac.learn(self._learner, inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return measured


def choose(training: Training, device: torch.device, record: Record = record_cuda_graph) -> tuple[str, str | None]:
    """The way for `training` on `device`: (its name, a sentence for the user or None). The name goes into `numeric`.

    A graph where it is asked for, there is a GPU, and recorded updates leave the very bits of others here, without
    which a resume would not be exact: it is tried each time.
    """
    if not training.cuda_graph or device.type != "cuda":
        return KERNELS, None
    try:
        if is_same(training, device, record):
            return GRAPH, None
        why = "its updates leave other bits here"
    except RuntimeError as error:  # torch's for whatever CUDA says
        why = f"it cannot be recorded here ({' '.join(str(error).split())[:_QUOTE]})"
    return KERNELS, f"training.cuda_graph is left out: {why}"


def is_same(training: Training, device: torch.device, record: Record = record_cuda_graph) -> bool:
    """Whether recorded updates leave the very bits that others do. Errors: RuntimeError where CUDA cannot record."""
    found = []
    for way in (KERNELS, GRAPH):
        learner = mtsac.create(training, device)
        update = Updates(learner, way, record).update
        measured = [update(_made_up(training, seed)) for seed in range(WARM_UP + CHECKED)]
        found.append({**mtsac.nets_of(learner), **mtsac.rest_of(learner), "measured": torch.stack(measured).cpu()})
    one, other = found
    return all(torch.equal(one[name], other[name]) for name in one)


def _made_up(training: Training, seed: int) -> Batch:
    """Noise in the shape of a batch."""
    rng, rows = np.random.default_rng(seed), training.batch_size
    numbers = {name: rng.standard_normal((rows, *shape), np.float32) for name, (shape, _) in FIELDS.items()}
    numbers["terminated"] = (numbers["terminated"] > 2).astype(np.float32)
    return Batch(**numbers, task=np.arange(rows) % len(training.tasks))
