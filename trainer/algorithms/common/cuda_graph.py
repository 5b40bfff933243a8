"""How a learner's updates get to its device: kernel by kernel, or on a GPU recorded once and replayed.

An update of small nets is some 200 kernels of a few microseconds, and Python takes longer to launch each than the GPU
to run it. A CUDA graph ("CUDA Graphs" in torch's notes) launches all of them at once. What it replays are addresses,
so inputs are copied to where they lay when it was recorded, and results are copied away.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

#: The names of all ways, as a checkpoint's `numeric` has them. Plain nets on a CPU are updated by the engine
#: (`trainer.nets.engine`), with numbers of its own.
KERNELS, GRAPH, ENGINE, NATIVE = "kernels", "graph", "engine", "native"
#: Updates made before recording, as torch's notes have it: libraries choose and allocate, Adam makes its state. They
#: are updates like any other.
WARM_UP = 3

#: Records what a function does without doing it: (how to do it, the tensor that is then the result).
Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


def record_cuda_graph(update: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """`update` as a CUDA graph. No garbage is looked for meanwhile: it may hold a graph, which must not end then."""
    graph, looks = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            measured = update()
    finally:
        if looks:
            gc.enable()
    return graph.replay, measured


#: A dataclass of tensors, all on the device: whatever an update works on.
Inputs = TypeVar("Inputs", bound=Any)


@dataclass(frozen=True)
class _Recording(Generic[Inputs]):
    """An update of what lies in `inputs`, which leaves its metrics in `measured`."""

    inputs: Inputs
    play: Callable[[], None]
    measured: Tensor

    def replay(self, inputs: Inputs) -> Tensor:
        """The update, of these `inputs`."""
        for field in fields(inputs):
            getattr(self.inputs, field.name).copy_(getattr(inputs, field.name))
        self.play()
        return self.measured.clone()


class Updates(Generic[Inputs]):
    """Makes updates by `learn`, a plain function of tensors: by `KERNELS`, or by a `GRAPH` after the first few.

    What `learn` changes stays where it is: load a state before the first update.
    """

    def __init__(
        self,
        learn: Callable[[Inputs], Tensor],
        device: torch.device,
        way: str = KERNELS,
        record: Record = record_cuda_graph,
    ) -> None:
        self._learn = learn
        self._device = device
        self._way = way
        self._record = record
        self._made = 0
        self._recording: _Recording[Inputs] | None = None

    def update(self, inputs: Inputs) -> Tensor:
        """One update. Returns what `learn` measures, a tensor on the device."""
        if self._way == KERNELS:
            return self._learn(inputs)
        if self._made < WARM_UP:
            self._made += 1
            return self._on_side_stream(inputs)
        if self._recording is None:
            places = type(inputs)(*(getattr(inputs, field.name).clone() for field in fields(inputs)))
            self._recording = _Recording(places, *self._record(lambda: self._learn(places)))
        return self._recording.replay(inputs)

    def _on_side_stream(self, inputs: Inputs) -> Tensor:
        """An update on a stream of its own, where work that is to be recorded must have been done before."""
        if self._device.type != "cuda":
            return self._learn(inputs)
        stream = _side_stream(self._device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            measured = self._learn(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return measured


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Always the same one: cuBLAS keeps 32 MiB for each stream that it ever computed on."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
