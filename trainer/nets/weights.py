"""Files of weights: read, checked against the net that they are for, and kept.

A file is safetensors (also a folder with its shards, as Hugging Face lays them) or what `torch.save` wrote, of which
tensors alone are taken. Nothing of a file is ever run, and no part of it enters a net before all of it fits.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from anchorleg.files import LEFT_BEHIND_S, make_folder, read_json, sweep_temporary, write_bytes
from trainer.errors import ConfigError, may_pass, unread

#: What upstream's files have before the names of the tensors that are read, and what else they bring: the heads of what
#: they were trained for.
PREFIXES, HEADS = ("timesformer.",), ("fc.", "classifier.")
#: More than any published net of these kinds (TimeSformer-large: 1.7 GB), and less than a laptop's memory.
MOST_BYTES = 4 * 2**30
#: The folder of a slot that has its own copy.
WEIGHTS = "weights"
_WHERE = "network.encoder.weights"
_SUFFIX, _OF_TORCH = ".safetensors", (".pth", ".pt", ".bin")
_WHOLE, _TORCH_WHOLE, _CONFIG = "model.safetensors", "pytorch_model.bin", "config.json"
#: In a kept copy: sha256 of what it was made of, and of the numbers in it.
_SOURCE, _NUMBERS = "source_sha256", "numbers_sha256"
_SHA256 = re.compile("[0-9a-f]{64}")
_CHUNK = 2**20
#: What torch says of a file whose pickle wants more than tensors (torch/_weights_only_unpickler.py).
_OF_CODE = ("unsupported global", "unsupported class", "can only create new object", "can only build tensor")


@runtime_checkable
class Fitting(Protocol):
    """An encoder whose file may be of another size than the observation."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What a `config.json` beside the tensors must not say otherwise: shapes do not show it."""

    def fitted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`tensors`, some of them brought to the size of the observation."""


def load(module: nn.Module, path: Path, arch: str) -> None:
    """Put the tensors of a file into `module`, the encoder `arch`: all of them, and no others.

    Errors: as `tensors_for`. The module is then as it was.
    """
    module.load_state_dict(tensors_for(module, path, arch), strict=True)


def tensors_for(module: nn.Module, path: Path, arch: str) -> dict[str, Tensor]:
    """The tensors of a file by the names of `module`, the encoder `arch`, which may be on torch's `meta` device.

    One known prefix is taken off and one known head left out; a `Fitting` brings tensors to its own size first.

    Errors: ConfigError where the file is missing, damaged, no weights, or of another net: the first tensor that is
    missing, too many or of another shape is named; UndecidedError where it cannot be read now.
    """
    if isinstance(module, Fitting):
        _check_config(path, module.config, arch)
    own = module.state_dict()
    found = _without_extras(read(path), own)
    if isinstance(module, Fitting):
        found = module.fitted(found)
    for name, wanted in own.items():
        tensor = found.get(name)
        if tensor is None:
            raise ConfigError("weights.tensor-missing", path=path, arch=arch, tensor=name)
        if tensor.shape != wanted.shape:
            shapes = {"found": str(list(tensor.shape)), "wanted": str(list(wanted.shape))}
            raise ConfigError("weights.tensor-shape", path=path, arch=arch, tensor=name, **shapes)
        if tensor.is_floating_point() != wanted.is_floating_point():
            kinds = {"found": str(tensor.dtype), "wanted": str(wanted.dtype)}
            raise ConfigError("weights.tensor-type", path=path, tensor=name, **kinds)
    if unknown := next((name for name in found if name not in own), None):
        raise ConfigError("weights.tensor-unknown", path=path, arch=arch, tensor=unknown)
    return {name: found[name].to(wanted.dtype) for name, wanted in own.items()}


def read(path: Path) -> dict[str, Tensor]:
    """Name → tensor, on the CPU, of a file or of a folder's shards, with all names that are there.

    Errors: ConfigError where it is damaged, holds more than tensors, or numbers that are not finite in the single
    precision of nets; UndecidedError where it cannot be read now.
    """
    tensors: dict[str, Tensor] = {}
    with _reading(path):
        for file in _files(path):
            tensors |= _from_safetensors(file) if file.suffix == _SUFFIX else _from_torch(file)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise ConfigError("weights.not-finite", path=path, tensor=name)
    return tensors


def is_there(path: Path) -> bool:
    """Whether there is something to read. Errors: ConfigError where nobody can (a link to itself, a name that is too
    long); UndecidedError where that cannot be found out now.
    """
    with _reading(path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def sha256_of(path: Path) -> str:
    """sha256 (hex) of a file, or of a folder's shards one after the other in the order of their names; of a kept copy
    that of what it was made of.

    Errors: ConfigError where there is none, or nobody can read it; UndecidedError where it cannot be read now.
    """
    with _reading(path):
        files = _files(path)
        if len(files) == 1 and (source := _source_of(files[0])) is not None:
            return source
        digest = hashlib.sha256()
        for file in files:
            with open(file, "rb") as opened:
                while chunk := opened.read(_CHUNK):
                    digest.update(chunk)
        return digest.hexdigest()


def place_of(folder: Path, sha256: str) -> Path:
    """Where `kept_copy` leaves what was made of a file with this sum."""
    return folder / f"{sha256}{_SUFFIX}"


def sums_in(folder: Path) -> list[str]:
    """The sums of what `kept_copy` has left in `folder`."""
    return [file.stem for file in folder.glob(f"*{_SUFFIX}")]


def kept_copy(path: Path, folder: Path, sha256: str | None = None) -> Path:
    """Leave the tensors of a file or of a folder's shards in `folder`, durably, as one file of safetensors, unless they
    are there: its path. It has a digest of its numbers, which a reader checks. What a killed job left there is
    removed. `sha256`: the sum of `path`, where it is known.

    Errors: as `read`; OSError (disk full, no permission).
    """
    sha256 = sha256 or sha256_of(path)
    target = place_of(folder, sha256)
    sweep_temporary(folder, time.time() - LEFT_BEHIND_S)
    if not target.exists():
        tensors = {name: tensor.contiguous().clone() for name, tensor in read(path).items()}
        make_folder(folder)
        metadata = {_SOURCE: sha256, _NUMBERS: _digest(tensors)}
        write_bytes(target, safetensors.torch.save(tensors, metadata=metadata))
    return target


def _source_of(file: Path) -> str | None:
    """The sum of what a kept copy was made of; None: it is none, or is damaged. Errors: OSError."""
    if file.suffix != _SUFFIX:
        return None
    try:
        with _opened(file) as opened:
            metadata = opened.metadata() or {}
    except safetensors.SafetensorError:
        return None
    source = metadata.get(_SOURCE, "")
    return source if _NUMBERS in metadata and _SHA256.fullmatch(source) else None


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    """The files that the tensors lie in, in the order of their names."""
    if path.is_dir():
        whole = next((path / name for name in (_WHOLE, _TORCH_WHOLE) if (path / name).exists()), None)
        files = [whole] if whole is not None else sorted(path.glob(f"*{_SUFFIX}"))
        if not files:
            raise ConfigError("weights.no-shards", folder=path)
    elif path.exists():
        files = [path]
    else:
        raise ConfigError("weights.no-such-file", path=path)
    for file in files:
        if not file.is_file():  # a device or a pipe may have no end
            raise ConfigError("weights.not-regular", file=file)
        if file.suffix not in {_SUFFIX, *_OF_TORCH}:
            raise ConfigError("weights.other-suffix", file=file)
    size = sum(file.stat().st_size for file in files)
    if size > MOST_BYTES:
        raise ConfigError("weights.too-large", path=path, gib=size / 2**30, most=MOST_BYTES / 2**30)
    return files


def _opened(file: Path) -> safetensors.safe_open:
    with open(file, "rb"):
        pass  # or Python's own error, by which it is known whether that may pass
    return safetensors.safe_open(file, framework="pt", device="cpu")


def _from_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        with _opened(file) as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
    except safetensors.SafetensorError as error:
        raise _unreadable(file, error) from error
    if _NUMBERS in metadata and metadata[_NUMBERS] != _digest(tensors):
        raise ConfigError("weights.copy-damaged", file=file)
    return tensors


def _from_torch(file: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a plain pickle torch says that it is one
            value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        if isinstance(error, OSError) and may_pass(error):
            raise
        if any(words in str(error).lower() for words in _OF_CODE):
            raise ConfigError("weights.holds-code", file=file) from error
        raise _unreadable(file, error) from error
    if not isinstance(value, dict) or not value or not all(_is_plain_tensor(*item) for item in value.items()):
        raise ConfigError("weights.no-tensors", file=file)
    return dict(value)


def _is_plain_tensor(name: Any, value: Any) -> bool:
    return (
        isinstance(name, str)
        and isinstance(value, Tensor)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type == "cpu"
    )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever cannot be read inside becomes a sentence, by which nothing is called damaged that may be read later."""
    try:
        yield
    except OSError as error:
        if may_pass(error):
            raise unread(f"{error.filename or path} ({_WHERE})", error) from error
        raise _unreadable(Path(error.filename or path), error) from error


def _unreadable(file: Path, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", None) or str(error).partition("\n")[0].strip() or type(error).__name__
    if why.startswith("Weights only load failed"):  # and then how to have any code run
        why = "torch finds no tensors in it"
    return ConfigError("weights.unreadable", file=file, why=why[:120])


def _without_extras(tensors: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """Without the prefix and the head that upstream's files have and `own` names have not."""
    known = tuple(own)
    found = dict(tensors)
    for head in HEADS:
        if not any(name.startswith(head) for name in known):
            found = {name: tensor for name, tensor in found.items() if not name.startswith(head)}
    for prefix in PREFIXES:
        if found and all(name.startswith(prefix) for name in found):
            return {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found


def _check_config(path: Path, expected: Mapping[str, Any], arch: str) -> None:
    """Errors: ConfigError where a folder's description is of another net, in what no tensor's shape shows."""
    file, said = path / _CONFIG, {}
    if expected and path.is_dir() and file.exists():
        with _reading(path):
            try:
                said = dict(read_json(file))
            except (TypeError, ValueError, RecursionError) as error:
                raise _unreadable(file, error) from error
    for name, value in expected.items():
        if said.get(name, value) != value:
            said_and_wanted = {"found": said[name], "wanted": value}
            raise ConfigError("weights.other-description", file=file, arch=arch, name=name, **said_and_wanted)
