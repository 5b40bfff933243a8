"""The ranks: processes, on one node or several, that train one slot together and come to the same bits.

Rank r of W has the shards r · V / W and those that follow it, so what is gathered in the order of ranks is in the order
of shards. Nothing here adds anything up, and nothing is unpickled: tensors and bytes come as they were sent. They go by
gloo, also those of a GPU, by way of the host's memory. NVIDIA's NCCL is not used: it was not tried.

What a checkpoint and a row of metrics need of all ranks is brought to rank 0, which writes them: with one writer there
is one temporary folder and one rename, and no half of a checkpoint can be there.

A rank that dies closes its connections, which the others notice at once; one that hangs is given up after `ANSWER_S`.
What one that fails says of it, it prints itself; its exit code is in a file (`launching.leave_code`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
import torch.distributed as dist
from torch import Tensor

from anchorleg.files import read_json, to_json, write_bytes
from trainer.errors import RanksError
from trainer.machine.launching import LOOPBACK, RankPlace
from trainer.state import State, shared_of, united

#: A start takes minutes where a folder is slow and each rank reads a checkpoint; more is a rank that never came.
MEET_S = 600.0
#: Longer than workers may take to play their episodes again (`RESTORE_S` in trainer/envs/workers.py): so long a rank
#: may be busy while the others wait. Nothing else between two words of rank 0 takes as long.
ANSWER_S = 3600.0
#: How often the file is looked for that says where rank 0 waits.
LOOK_S = 0.1
#: In a job's own folder: where rank 0 waits for the others.
MEETING = "ranks.json"
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Group:
    """This process and its peers. Errors of all methods: RanksError where one ended, or says nothing for `ANSWER_S`."""

    rank: int = 0
    size: int = 1
    at: int = 0
    """Which of the ranks of this node it is, from 0."""
    here: int = 1
    """How many ranks this node has."""

    @classmethod
    def alone(cls) -> Group:
        """One rank: everything is at hand, and nothing is asked."""
        return cls()

    @classmethod
    def join(cls, place: RankPlace, folder: Path) -> Group:
        """Meet the other ranks; `folder` is seen by all, and nobody met in it before.

        Errors: RanksError where they do not all come within `MEET_S`.
        """
        rank, size, host = place.rank, place.size, place.host
        if size == 1:
            return cls.alone()
        if host == LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        try:
            store = _met(rank, size, folder / MEETING, host)
            store.set(f"here/{rank}", "")
            store.wait([f"here/{one}" for one in range(size)], timedelta(seconds=MEET_S))
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=ANSWER_S)
            )
            dist.barrier()
        except (RuntimeError, OSError, ValueError) as error:
            first = str(error).splitlines()[0][:160]
            raise RanksError("ranks.not-met", rank=rank, size=size, path=folder / MEETING, why=first) from error
        return cls(rank, size, place.at, place.here)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which decides, saves, evaluates and publishes."""
        return self.rank == 0

    def own(self, shards: int) -> range:
        """The shards of this rank, of all `shards`, which `size` divides."""
        each = shards // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def gathered(self, own: Tensor) -> Tensor:
        """Everybody's rows, in the order of ranks: [own, P] each → [size · own, P], on the device of `own`."""
        if self.size == 1:
            return own
        here = own.detach().contiguous().cpu()
        every = torch.empty((self.size * len(here), *here.shape[1:]), dtype=here.dtype)
        with self._answered():
            dist.all_gather(list(every.chunk(self.size)), here)
        return every.to(own.device)

    def tell(self, number: int = 0) -> int:
        """What rank 0 says to all; from others it is not looked at."""
        if self.size == 1:
            return number
        word = torch.tensor([number])
        with self._answered():
            dist.broadcast(word, 0)
        return int(word)

    def share(self, data: bytes = b"") -> bytes:
        """Rank 0's `data`, for all."""
        if self.size == 1:
            return data
        length = self.tell(len(data))
        room = torch.empty(length, dtype=torch.uint8)
        if self.is_first:
            room = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        with self._answered():
            dist.broadcast(room, 0)
        return room.numpy().tobytes()

    def collect(self, data: bytes) -> list[bytes]:
        """Everybody's `data` in the order of ranks, on rank 0; elsewhere nothing."""
        if self.size == 1:
            return [data]
        sizes = self.gathered(torch.tensor([[len(data)]])).flatten().tolist()
        with self._answered():
            if not self.is_first:
                dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0)
                return []
            found = [data]
            for rank, length in enumerate(sizes[1:], 1):
                room = torch.empty(length, dtype=torch.uint8)
                dist.recv(room, rank)
                found.append(room.numpy().tobytes())
            return found

    def must_agree(self, what: str, digest: bytes, advice: str = "") -> None:
        """Errors: RanksError, naming the ranks, where `digest` (of one length) is not everywhere that of rank 0."""
        if self.size == 1:
            return
        every = self.gathered(torch.frombuffer(bytearray(digest), dtype=torch.uint8)[None])
        others = [str(rank) for rank in range(self.size) if not bool((every[rank] == every[0]).all())]
        if others:
            ranks = f"rank {others[0]} differs" if len(others) == 1 else f"ranks {', '.join(others)} differ"
            raise RanksError("ranks.differ", what=what, ranks=ranks, advice=advice)

    def close(self) -> None:
        """Leave. The others notice."""
        if self.size > 1 and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if "timed out" in str(error).lower():
                raise RanksError("ranks.silent", ranks=self.size, minutes=ANSWER_S / 60) from error
            raise RanksError("ranks.lost", ranks=self.size) from error


def _met(rank: int, size: int, path: Path, host: str) -> Any:
    """The store that all know: rank 0's process has it. On one node it listens on the loopback address alone; what is
    in it stands under a random name, so a visitor by mistake finds and changes nothing.
    """
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    patience = timedelta(seconds=MEET_S)
    if rank != 0:
        place = _waited_for(lambda: read_json(path))
        store = TCPStore(place["host"], place["port"], size, wait_for_workers=False, timeout=patience)
        return PrefixStore(place["name"], store)
    name, port, listens = secrets.token_hex(16), 0, None
    if host == LOOPBACK:
        server = socket.create_server((host, 0))
        port, listens = server.getsockname()[1], server.detach()  # by itself the store listens everywhere
    else:
        host = os.uname().nodename  # srun may have been started elsewhere
    store = TCPStore(
        host, port, size, is_master=True, wait_for_workers=False, timeout=patience, master_listen_fd=listens
    )
    write_bytes(path, to_json({"host": host, "port": store.port, "name": name}), mode=0o600)
    return PrefixStore(name, store)


def _waited_for(read: Callable[[], Any]) -> Any:
    until = time.monotonic() + MEET_S
    while True:
        try:
            return read()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_S)


def gathered(group: Group, parts: Mapping[str, State]) -> dict[str, State]:
    """`parts`, each with the shards of all ranks, on rank 0; elsewhere as they are.

    What the shards share must be the same everywhere. Errors: RanksError, naming the ranks where it is not.
    """
    if group.size == 1:
        return dict(parts)
    shared = {name: shared_of(state) for name, state in parts.items()}
    must_be_the_same(group, shared)
    own = parts if group.is_first else {name: _own_of(state, shared[name]) for name, state in parts.items()}
    others = [unpacked(data) for data in group.collect(b"" if group.is_first else packed(own))[1:]]
    return {name: united([state, *(other[name] for other in others)]) for name, state in parts.items()}


def gathered_numbers(group: Group, own: Mapping[int, State]) -> dict[int, State]:
    """States without tensors of all shards in their order, on rank 0; elsewhere nothing."""
    told = group.collect(json.dumps({str(shard): dict(state.numbers) for shard, state in own.items()}).encode())
    return {int(shard): State({}, numbers) for data in told for shard, numbers in json.loads(data).items()}


def must_be_the_same(group: Group, parts: Mapping[str, State]) -> None:
    """Errors: RanksError, naming the ranks where `parts` differ from those of rank 0."""
    if group.size > 1:
        group.must_agree("the parameters or their states", _digest(parts))


def _own_of(state: State, shared: State) -> State:
    tensors = {name: tensor for name, tensor in state.tensors.items() if name not in shared.tensors}
    return State(tensors, {name: value for name, value in state.numbers.items() if name not in shared.numbers})


def _digest(shared: Mapping[str, State]) -> bytes:
    sha = hashlib.sha256()
    for part, state in sorted(shared.items()):
        for name in sorted(state.tensors):
            array = _array(state.tensors[name])
            sha.update(f"{part} {name} {array.dtype} {array.shape}".encode() + array.tobytes())
        sha.update(json.dumps(state.numbers, sort_keys=True).encode())
    return sha.digest()


def packed(parts: Mapping[str, State]) -> bytes:
    """For `unpacked`."""
    numbers = json.dumps({name: dict(state.numbers) for name, state in parts.items()}).encode()
    tensors = {f"{name}/{key}": _array(t) for name, state in parts.items() for key, t in state.tensors.items()}
    kinds = {name: any(isinstance(t, Tensor) for t in state.tensors.values()) for name, state in parts.items()}
    head = json.dumps([len(numbers), kinds]).encode()
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + numbers + safetensors.numpy.save(tensors)


def unpacked(data: bytes) -> dict[str, State]:
    """As it was packed: torch's tensors are torch's again."""
    at = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    length, of_torch = json.loads(data[_LENGTH_BYTES:at])
    numbers = json.loads(data[at : at + length])
    tensors: dict[str, dict[str, Any]] = {name: {} for name in numbers}
    for name, array in safetensors.numpy.load(data[at + length :]).items():
        part, _, key = name.partition("/")
        tensors[part][key] = torch.from_numpy(array.copy()) if of_torch[part] else array
    return {name: State(tensors[name], numbers[name]) for name in numbers}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.numpy() if isinstance(tensor, Tensor) else tensor, order="C")
