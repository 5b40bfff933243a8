"""Does this tree train the same bits as that commit? For changes of the code's form, on any machine.

`python tests/samebits.py BEFORE [--only NAME ...] [--keep FOLDER] [--list]` makes the same short trainings with the
tree of the commit BEFORE (or of a folder, where BEFORE is one) and with this one, and compares what they came to. Of
each slot's newest checkpoint: every tensor and every row of a replay by its bytes, every number, and the rows of
metrics and of evaluations without their clocks. What a tensor, a part or a file is called does not count, for such a
change may call it something else: tensors are told by type, shape and content. Of the simulator, for each seed: what it
told and measured, and each file that it left. What is trained stands in support/samebits_cases.py.

A line a case: `same NAME 12.3 s` (of a processor, both trees together), `DIFFERS NAME: what first`, or `left out NAME:
why`. `--only` takes beginnings of names. `--keep` keeps what the commit BEFORE came to in FOLDER, and takes it from
there the next time. The exit code is 1 where anything differs, and 2 where a training failed.
"""

from __future__ import annotations

import argparse
import ctypes.util
import hashlib
import importlib.util
import json
import os
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import zstandard

sys.path.insert(0, str(Path(__file__).with_name("support")))
from samebits_cases import CASES, DRAWING, Case

ROOT = Path(__file__).resolve().parents[1]
#: A case takes seconds on a quiet core; this long only where it hangs.
TIMEOUT_S = 1200.0
#: Beginnings of variables by which other programs would have a say in a training.
FOREIGN = ("ANCHORLEG_", "SLURM_", "WANDB_", "PYTEST_")
#: Fields of rows that say when, or how long.
CLOCKS = {"at", "wall_s"}
#: In a checkpoint's JSON, what is no number of the training: its files' sums, its settings, who wrote it.
ABOUT = {"format", "kind", "step", "identity", "training", "versions", "files", "policy", "digest"}
ABOUT |= {"segments", "contributed", "peers"}
#: How a file of rows calls packed pictures, and how long their pieces are.
PACKED, LENGTHS = ".zstd", ".zstd.lengths"
#: Longer numbers, and lists of numbers, are told by their digest.
LONG = 60
#: Lines of a difference that are shown of each case in the end.
SHOWN = 12


class FailedError(Exception):
    """A training did not end as it should; with the end of what it said."""


@dataclass
class Came:
    """What a case came to: each thing and how often it is there, and rows by what tells them apart."""

    things: Counter[str] = field(default_factory=Counter)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)


def trained(code: Path, case: Case, folder: Path) -> Came:
    """What the tree `code` makes of a case; its folder is gone then. Errors: FailedError."""
    folder.mkdir(parents=True)
    for name, text in case.files.items():
        (folder / name).write_text(text)
    for command in case.commands:
        words, paths = list(command.words), [code]
        if words[0] != "-m":
            program = [*code.glob(f"tests/**/{words[0]}"), folder / words[0]][0]
            words[0], paths = str(program), [code, program.parent]
        paths += [code / "tests" / name for name in ("plugin", "support", "simulator")]
        environment = {**case.environment, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        code_of_end, said = _ended(words, folder, environment), (folder / "said").read_text(errors="replace")
        if code_of_end != command.code or (command.says and said.splitlines()[-1:] != [command.says]):
            shown = f"{code}: {' '.join(command.words)[:300]}\n{said[-3000:]}"
            raise FailedError(f"{shown}\nended with {code_of_end}, not with {command.code} {command.says}")
    came = came_to(folder)
    shutil.rmtree(folder)
    return came


def _ended(words: list[str], folder: Path, environment: dict[str, str]) -> int:
    """The exit code of a program in a process that is forked from this one; negative: the signal that killed it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _become(words, folder, environment)
        except BaseException:  # noqa: BLE001 - nothing may come back into what was forked
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + TIMEOUT_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def _become(words: list[str], folder: Path, environment: dict[str, str]) -> int:
    """As `python WORDS` in `folder`; what it says goes to the file `said`."""
    os.setpgid(0, 0)
    said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for to, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, said), (2, said)):
        os.dup2(file, to)
    os.chdir(folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    os.environ.clear()
    os.environ.update({**kept, "OMP_NUM_THREADS": "1", **environment})
    del sys.modules["samebits_cases"]
    theirs = [path for path in sys.path if not Path(path).is_relative_to(ROOT / "tests")]
    sys.path[:] = [*environment["PYTHONPATH"].split(os.pathsep), *theirs]
    sys.argv[:] = words[words[0] == "-m" :]
    try:
        if words[0] == "-m":
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def left_out(case: Case) -> str:
    """Why a case cannot be made here; "" where it can."""
    for name in case.needs:
        is_there = importlib.util.find_spec("OpenGL" if name == DRAWING else name) is not None
        if name == DRAWING:
            is_there = is_there and any(map(ctypes.util.find_library, ("OSMesa", "EGL")))
        if not is_there:
            return f"there is no {name}"
    return ""


def came_to(folder: Path) -> Came:
    """What lies in a case's folder. Errors: FailedError where there is nothing."""
    came = Came()
    for slot in sorted(folder.glob("*/slots/*")):
        _read_checkpoint(slot, came)
        for journal, key in (("metrics.jsonl", "to"), ("evaluations.jsonl", "step")):
            for path in sorted(slot.rglob(journal), key=lambda path: int(path.parent.name)):
                for row in map(json.loads, path.read_text().split("\n")[:-1]):
                    if key in row:  # what a later attempt did again counts
                        came.rows[f"slot {slot.name}: {journal} {key} {row[key]}"] = _timeless(row)
    for told in folder.glob("told.jsonl"):
        for seed in map(json.loads, told.read_text().splitlines()):
            files = {name: _sha(text.encode()) for name, text in seed.pop("files").items()}
            came.rows[f"seed {seed.pop('seed')}"] = {**seed, **files}
    if not came.things and not came.rows:
        raise FailedError(f"nothing was left in {folder}")
    return came


def _read_checkpoint(slot: Path, came: Came) -> None:
    """The newest one, and the rows that it names. Errors: FailedError."""
    found = [path for path in slot.glob("attempts/*/checkpoints/*") if path.name.isdigit()]
    if not found:
        raise FailedError(f"no checkpoint in {slot}")
    newest = max(found, key=lambda path: (int(path.parts[-3]), int(path.name)))
    things, rows, sums = [f"step {int(newest.name)}"], Counter[str](), Counter[str]()
    for path in newest.rglob("*.safetensors"):
        things += [f"tensor {dtype} {shape} {_sha(data)}" for dtype, shape, data in _tensors(path).values()]
    for path in newest.rglob("*.json"):
        value = json.loads(path.read_text())
        things += [f"number {number}" for number in _numbers({k: kept for k, kept in value.items() if k not in ABOUT})]
        for kind, file in _files_named(value, slot):
            _add_rows(file, kind, rows, sums)
    for name, count in rows.items():
        things.append(f"{count} rows {name.partition('|')[2]} {sums[name] % 2**64:016x}")
    came.things.update(f"slot {slot.name}: {thing}" for thing in things)


def _tensors(path: Path) -> dict[str, tuple[str, list[int], bytes | memoryview]]:
    """By name: type, shape and content of each in a file."""
    data = memoryview(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(bytes(data[8:begin]))
    head.pop("__metadata__", None)
    places = {name: slice(*about["data_offsets"]) for name, about in head.items()}
    return {name: (about["dtype"], about["shape"], data[begin:][places[name]]) for name, about in head.items()}


def _add_rows(path: Path, kind: str, rows: Counter[str], sums: Counter[str]) -> None:
    """Count a file's rows, and add up their digests: which rows share a file depends on when they were written."""
    arrays = _tensors(path)
    count = next(shape[0] for name, (_, shape, _) in arrays.items() if PACKED not in name)
    for name, (dtype, _, kept) in arrays.items():
        plain = name.removesuffix(PACKED)
        data = _unpacked(kept, arrays[plain + LENGTHS][2]) if plain != name else kept
        size = len(data) // count
        if not name.endswith(LENGTHS) and size:
            key = f"{kind}.{plain}|{dtype} of {size} bytes"
            digests = (hashlib.sha256(data[at : at + size]).digest() for at in range(0, len(data), size))
            rows[key] += count
            sums[key] += sum(int.from_bytes(digest[:8], "big") for digest in digests)


def _unpacked(data: bytes | memoryview, lengths: bytes | memoryview) -> bytes:
    pieces, at = [], 0
    for length in memoryview(lengths).cast("q"):
        pieces.append(zstandard.ZstdDecompressor().decompress(data[at : at + length]))
        at += length
    return b"".join(pieces)


def _numbers(value: Any) -> Iterator[str]:
    """Each number, and each list of nothing else, wherever it stands."""
    if isinstance(value, dict) or (isinstance(value, list) and not _is_plain(value)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)
    elif _is_plain(value):
        text = json.dumps(value)
        yield text if len(text) < LONG else f"{text[:40]}… {_sha(text.encode())}"


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, int | float)


def _files_named(value: Any, slot: Path, kind: str = "") -> Iterator[tuple[str, Path]]:
    """Files of rows that a checkpoint names, each with the list that it is in."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _files_named(inner, slot, kind or str(name))
    elif isinstance(value, str) and value.endswith(".safetensors") and (slot / value).is_file():
        yield kind, slot / value


def _timeless(row: Any) -> Any:
    is_row = isinstance(row, dict)
    return {name: _timeless(value) for name, value in row.items() if name not in CLOCKS} if is_row else row


def _sha(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def differences(before: Came, now: Came) -> list[str]:
    """A line each."""
    lines = []
    for key in {**before.rows, **now.rows}:
        old, new = before.rows.get(key), now.rows.get(key)
        if old is None or new is None:
            lines.append(f"{key}: only {'now' if old is None else 'before'}")
        else:
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            lines += [f"{key}: {name}: {_first(old.get(name), new.get(name))}" for name in names]
    for when, more, less in (("before", before, now), ("now", now, before)):
        only = more.things - less.things
        lines += [f"{thing}: only {when}{f', {count} times' if count > 1 else ''}" for thing, count in only.items()]
    return lines


def _first(old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):
        pairs = enumerate(zip_longest(old, new))
        at = next(at for at, (one, other) in pairs if one != other)
        old, new = (f"line {at} of {len(lines)}: {lines[at : at + 1]}" for lines in (old, new))
    return f"{str(old)[:200]} before, {str(new)[:200]} now"


def laid_out(before: str, folder: Path) -> tuple[Path, str]:
    """The tree of BEFORE, and the name of its commit; "" of a folder, which may change."""
    if Path(before).is_dir():
        return Path(before).resolve(), ""
    commit = _git("rev-parse", "--verify", f"{before}^{{commit}}").decode().strip()
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", commit), check=True, timeout=TIMEOUT_S)
    return folder, commit


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, timeout=TIMEOUT_S).stdout


def compared(before: str, names: list[str], here: Path, keep: Path | None) -> int:
    """Train, compare, and say what differs; the exit code."""
    code, commit = laid_out(before, here / "tree")
    found: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    for name in names:
        case, since = CASES[name], _used_s()
        if why := left_out(case):
            print(f"left out {name}: {why}", flush=True)
            continue
        kept = keep / commit / f"{name}-{_sha(repr(case).encode())}.json" if keep and commit else None
        try:
            if kept is not None and kept.exists():
                value = json.loads(kept.read_text())
                old = Came(Counter(value["things"]), value["rows"])
            else:
                old = trained(code, case, here / "before" / name)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(vars(old)))
            lines = differences(old, trained(ROOT, case, here / "now" / name))
        except FailedError as error:
            failed[name] = str(error)
            print(f"FAILED {name}: {failed[name].splitlines()[-1]}", flush=True)
            continue
        found |= {name: lines} if lines else {}
        words = f"DIFFERS {name}: {lines[0]}" if lines else f"same {name}"
        print(f"{words} {_used_s() - since:.1f} s", flush=True)
    for name, lines in found.items():
        more = [f"and {len(lines) - SHOWN} more"] if lines[SHOWN:] else []
        print("\n".join([f"\n{name}:", *lines[:SHOWN], *more]))
    print("".join(f"\n{name}:\n{words}\n" for name, words in failed.items()))
    print(f"{len(names)} cases: {len(found)} differ, {len(failed)} failed; {_used_s():.0f} s")
    return 2 if failed else 1 if found else 0


def _used_s() -> float:
    """Seconds of a processor that all trainings took until now."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", default="HEAD", help="a commit, or a folder; left out: HEAD")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where what BEFORE came to is kept")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    asked = parser.parse_args()
    names = [name for name in CASES if name.startswith(tuple(asked.only))]
    if asked.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory(prefix="samebits-") as temporary:
        return compared(asked.before, names, Path(temporary).resolve(), asked.keep)


if __name__ == "__main__":
    sys.exit(main())
