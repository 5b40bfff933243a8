"""What each encoder of pictures and clips costs.

`python bench/encoders.py [ROUNDS]`: one camera in colour, one observation, one thread, CPU time, the least of ROUNDS
(3) rounds: forward alone, and forward and backward. Multiply-adds are torch's own count (`flop_counter`, which counts
two operations for each) over the net on the meta device; what backward keeps is counted there too: the tensors that
autograd saves, parameters left out. Writes encoders.csv.
"""

from __future__ import annotations

import figures
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from trainer.config.find import ENCODERS, find
from trainer.config.network import ARCHES, RGB, EncoderArch, EncoderSettings, Network
from trainer.envs.spaces import ArraySpec

#: What all are measured at beside the size that each is meant for.
SIZE, FRAMES = 64, 8
MEGA = 1e6


def inputs_of(arch: EncoderArch) -> list[ArraySpec]:
    """Clips of 8 frames of 64 by 64, or pictures of 64 by 64; and what it is meant for."""
    if arch.reads == "pictures":
        return [ArraySpec((RGB, SIZE, SIZE), "uint8", 0, 255)]
    shapes = dict.fromkeys([(FRAMES, RGB, SIZE, SIZE), (arch.frames, RGB, arch.size, arch.size)])
    return [ArraySpec(shape, "uint8", 0, 255, shape[0]) for shape in shapes]


def counted(net: nn.Module, spec: ArraySpec) -> tuple[float, float]:
    """(multiply-adds, bytes that backward keeps) of one observation, of a net on the meta device."""
    own = {parameter.untyped_storage()._cdata for parameter in net.parameters()}  # noqa: SLF001 - as below
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        address = storage._cdata  # noqa: SLF001 - what tells two storages apart where neither has memory
        if address not in own:
            kept[address] = storage.nbytes()
            alive.append(storage)
        return tensor

    alive: list[object] = []
    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net(torch.empty(1, *spec.shape, dtype=torch.uint8, device="meta"))
    return counter.get_total_flops() / 2, sum(kept.values())


def timed(net: nn.Module, spec: ArraySpec, rounds: int) -> tuple[float, float]:
    """CPU seconds of forward, and of forward and backward: the least of so many rounds, after one to warm up."""
    seen = torch.randint(0, 256, (1, *spec.shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)

    def forward() -> None:
        with torch.no_grad():
            net(seen)

    def both() -> None:
        net(seen).sum().backward()

    forward_s, both_s = (min([figures.timed(call) for _ in range(rounds + 1)][1:]) for call in (forward, both))
    return forward_s, both_s


def row(name: str, label: str, network: Network, spec: ArraySpec, rounds: int) -> list[object]:
    shape, arch = spec.shape, ARCHES[name]
    text = "x".join(str(size) for size in (shape if len(shape) == 4 else shape[1:]) if size != RGB)
    meant = " (its own)" if (arch.size, arch.frames) == (shape[-1], shape[0] if len(shape) == 4 else 1) else ""
    shapes = find(ENCODERS, name)(spec, network, None)
    macs, kept = counted(shapes, spec)
    net = find(ENCODERS, name)(spec, network, torch.Generator().manual_seed(0))
    forward_s, both_s = timed(net, spec, rounds)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    print(f"{label} {text}: {1000 * forward_s:.1f} and {1000 * both_s:.1f} ms", flush=True)
    return [
        label,
        text + meant,
        f"{parameters / MEGA:.2f} M",
        shapes.features,
        f"{macs / 1e9:.3f} G",
        f"{1000 * forward_s:.1f}",
        f"{1000 * both_s:.1f}",
        f"{kept / MEGA:.1f}",
    ]


def main() -> None:
    rounds = figures.number(1, 3)
    torch.set_num_threads(1)
    rows = []
    for name, arch in ARCHES.items():
        kinds = {name: Network()}
        if name == "simple2dcnn":
            kinds[f"{name}, mean"] = Network(encoder=EncoderSettings(arch=name, over_time="mean"))
        for label, network in kinds.items():
            rows += [row(name, label, network, spec, rounds) for spec in inputs_of(arch)]
    head = (
        "encoder",
        "frames x pixels",
        "parameters",
        "features",
        "multiply-adds",
        "forward ms",
        "and backward ms",
        "backward keeps MB",
    )
    figures.save("encoders", head, rows)


if __name__ == "__main__":
    main()
