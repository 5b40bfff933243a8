"""`python tests/samejson.py BEFORE [--keep FOLDER] [--only WORD]`: whether `--json` still says what it said.

BEFORE: a commit of this repository, or a folder with another version of it. Its code makes recorded runs (a stopped run
with a killed job and a paused slot, one of many jobs by its ledger, a training that ended, one with contributions, a
laptop's mirror, demonstrations). Then each command of `COMMANDS` runs in both trees, each time over a fresh copy in the
same place and with the same clock, and what they print as JSON is compared, and how they end. Every command that has
`--json` must be in `COMMANDS` or, with the reason, in `LEFT_OUT`. What differs by intention stands in `CUT`.

Prints `same NAME` or `DIFFERS NAME: path old → new`; ends with 1 where anything differs, 0 else. FOLDER keeps the
states, for the next time too, and what each command printed; WORD is part of the names of what runs. It takes minutes.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("orchestrator", "trainer", "syncd", "viewer")
TIMEOUT_S = 1200
ABSENT = "nothing"
#: Shell patterns of `NAME: path`, or of `NAME` alone where a whole command goes: what goes on purpose.
CUT: tuple[str, ...] = (
    "orchestrator status*: json.second_look",
    "orchestrator status*: json.stale",
    "orchestrator goodput*: json.run_dir",
    "orchestrator goodput*: json.stale",
    "orchestrator explain*: json.facts",
    "* doctor*: json.findings",
    "* doctor*: json.facts*",
    "orchestrator doctor*: json.reasons",
    # A refusal is an object with `error` and `fields`.
    "* nobody*: json",
    "* nowhere*: json",
    "orchestrator explain 7*: json",
    "syncd agent*: json",
    "trainer compare td3/run*: json",
    # One view of a run for all screens (version 5).
    *(
        f"viewer *: json.{path}"
        for path in (
            "version",
            "utc_offset*",
            "run.cards.*",
            "run.times.*",
            "run.goodput.*",
            "run.experiments",
            "run.queue",
            "run.way",
            "run.policies.*.checked",
        )
    ),
    # Commands and flags that went: `chosen_because` with the choice of a transport, `--board`.
    "syncd *: json.chosen_because",
    "syncd contributors* --board*",
    "trainer actors*: json.steps_per_s",
    "orchestrator start",
    "orchestrator stop",
    "orchestrator tick",
)
#: Keys whose values are of this process, this machine or this moment, at any depth.
OF_THE_MOMENT = {"pid", "host", "wall_s", "took_s", "seconds", "latency_s", "steps_per_second", "rate", "process"}
#: Each tree's `sitecustomize`: the clock stands still.
CLOCK = "import os, time\nnow = float(os.environ['ANCHORLEG_SAME_CLOCK'])\ntime.time = lambda: now\n"
WATCHED = {"run_name": "mt10", "executor": "slurm", "slots": 4, "slurm": {"time_limit": "4:00:00"}, "training": {}}
NETS = {"encoder": {"arch": "spots:Eye"}, "actor_hidden": [8], "critic_hidden": [8]}
SPOTS = {"env": {"name": "spots:Spots", "observation": "both", "image_size": 32}, "network": NETS, "algorithm": "sac"}
RECORD = ("demos", "record", "--config", "spots.json", "--episodes", "2", "--out")
#: Command without `--json` → why it is not compared.
LEFT_OUT = {"trainer autotune": "no number of it comes again", "trainer presets": "what it says is in the tree"}


@dataclass(frozen=True)
class Command:
    """One to compare: `words` as typed in the folder `place` of the states. `rough`: it tells of this machine, so any
    number is like any other; `last`: of several lines of JSON the last one is compared.
    """

    place: str
    words: str
    rough: bool = False
    last: bool = False
    name = property(lambda self: f"{self.words} ({self.place})")


COMMANDS = (
    *(Command("relay/toy", f"orchestrator {words}") for words in (
        "status", "status --price 3.5", "explain 0", "explain 1 --last 50", "explain 2", "goodput", "runs",
        "status nobody", "explain 7",
    )),
    Command("relay/toy", "orchestrator doctor", rough=True),
    *(Command("watched", f"orchestrator {words}") for words in (
        "status", "explain 0", "explain 1 --last 50", "goodput",
    )),
    *(Command("mirror", f"syncd {words}") for words in (
        "status laptop", "pull shared laptop", "push shared laptop", "bidirectional shared laptop",
        "contributors shared", "agent-status",
    )),
    Command("mtsac", "syncd contributors run/shared"),
    Command("mirror", "syncd doctor shared laptop", rough=True),
    *(Command(".", f"viewer {run}") for run in ("relay/toy/runs/toy", "watched/runs/mt10", "td3/run", "mtsac/run",
                                                "mirror/laptop", "nowhere")),
    Command("td3", "trainer evaluate run --goals 2"),
    Command("td3", "trainer export run --out policy.safetensors"),
    Command("td3", "trainer plot run"),
    Command("mtsac", "trainer plot run"),
    Command(".", "trainer compare td3/run mtsac/run"),
    Command("td3", "trainer actors --shared-dir run/shared --num-envs 1 --steps 40", rough=True, last=True),
    Command("spots", f"trainer {' '.join(RECORD)} again"),
    Command("spots", "trainer demos fit --demos demos --config spots.json --steps 4 --measure-every 2 --run-dir fit"),
    Command("spots", "trainer demos import dataset --out imported --size 32"),
)  # fmt: skip


def options_of(program: str) -> list[str]:
    """The commands of `program` that have `--json`."""
    from typer.main import get_command

    def walk(command: Any, path: str) -> Iterator[str]:
        for name, one in getattr(command, "commands", {}).items():
            yield from walk(one, f"{path} {name}")
        if any("--json" in option.opts for option in command.params):
            yield path

    return list(walk(get_command(importlib.import_module(f"{program}.cli").app), program))


class Trees:
    """Both versions, the states and the folder that every command finds its copy in."""

    def __init__(self, folder: Path, before: Path) -> None:
        self.states, self.work, self.said = folder / "states", folder / "work", folder / "said"
        self.before, self.clock = before, folder / "clock"
        self.said.mkdir(exist_ok=True)
        self.clock.mkdir(exist_ok=True)
        (self.clock / "sitecustomize.py").write_text(CLOCK)
        self.now = self.states.stat().st_ctime if self.states.exists() else time.time()

    def run(self, tree: Path, place: str, *words: str, stands: bool = True) -> subprocess.CompletedProcess[str]:
        """Python of `tree` in a folder of the states. `stands`: the clock does."""
        paths = [tree, tree / "tests/support", tree / "tests/plugin", *([self.clock] if stands else [])]
        state = self.work / "relay/toy/state"
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.work), "XDG_STATE_HOME": str(state), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, paths)), "ANCHORLEG_SAME_CLOCK": str(self.now), "COLUMNS": "200",
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-P", *words], cwd=self.work / place, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def build(self) -> None:
        """Make the states with the older code; they lie in `states` then, and belong into `work`."""
        sys.path.insert(0, str(ROOT / "tests/support"))
        from old_runs import unpacked

        self.work.mkdir()
        for name in ("relay", "mirror", "td3", "mtsac"):
            unpacked(name, self.work / name)
        for name, config in (("watched/cluster_config.json", WATCHED), ("spots/spots.json", SPOTS)):
            (self.work / name).parent.mkdir()
            (self.work / name).write_text(json.dumps(config))
        make = "import sys, pathlib; from watched_runs import a_watched_run; "
        make += "a_watched_run(pathlib.Path('runs/mt10').resolve(), float(sys.argv[1]), rows=20)"
        for place, *words in (
            ("watched", "-c", make, str(self.now)),
            ("td3", "-m", "trainer", "train", "--config", "training.json", "--run-dir", "run"),
            ("spots", "-m", "trainer", *RECORD, "demos"),
            ("spots", "-m", "trainer", "demos", "export", "demos", "--out", "dataset"),
        ):
            done = self.run(self.before, place, *words, stands=False)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        self.work.rename(self.states)
        self.now = self.states.stat().st_ctime

    def outcome(self, tree: Path, command: Command) -> Any:
        """What a command does, without what is of the moment."""
        shutil.rmtree(self.work, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self.states), str(self.work)], check=True)
        program, *words = command.words.split()
        done = self.run(tree, command.place, "-m", program, *words, "--json")
        name = re.sub(r"\W+", "-", command.name) + ("-before" if tree == self.before else "-after")
        (self.said / f"{name}.txt").write_text(f"{done.returncode}\n{done.stdout}\n{done.stderr}")
        out = done.stdout.strip().splitlines()[-1] if command.last and done.stdout.strip() else done.stdout
        try:
            value = json.loads(out) if out.strip() else ABSENT
        except ValueError:
            value = "no JSON"
        return {"exit code": done.returncode, "json": timeless(value, str(tree), rough=command.rough)}


def timeless(value: Any, tree: str, *, rough: bool) -> Any:
    """Without clocks, processes and the tree's own place."""
    if isinstance(value, dict):
        return {key: timeless(one, tree, rough=rough) for key, one in value.items() if key not in OF_THE_MOMENT}
    if isinstance(value, list):
        return [timeless(one, tree, rough=rough) for one in value]
    if isinstance(value, str):
        return re.sub(r"\d+([.,:]\d+)*" if rough else r"\bpid \d+", "#", value.replace(tree, "TREE"))
    return "number" if rough and isinstance(value, int | float) and not isinstance(value, bool) else value


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each path where they differ, and how."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{path}.{number}")
    elif old != new or type(old) is not type(new):
        yield path, f"{json.dumps(old)[:300]} → {json.dumps(new)[:300]}"


def is_cut(name: str, path: str = "") -> bool:
    """Whether it was taken out on purpose."""
    return any(fnmatch.fnmatchcase(name, one) or fnmatch.fnmatchcase(f"{name}: {path}", one) for one in CUT)


def forgotten(trees: Trees) -> list[str]:
    """What is wrong with the tables: a command with `--json` that is in none, or one that is gone."""
    covered = {" ".join(command.words.split()[:n]) for command in COMMANDS for n in (1, 2, 3)}
    walks = (trees.run(tree, ".", __file__, "--walk", stands=False).stdout for tree in (trees.before, ROOT))
    before, after = map(json.loads, walks)
    unknown = [f"{name}: in neither table" for name in after if name not in {*covered, *LEFT_OUT}]
    return unknown + [f"{name}: gone" for name in before if name not in after and not is_cut(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", nargs="?")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--walk", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.walk:
        print(json.dumps([name for program in PROGRAMS for name in options_of(program)]))
        return 0
    folder = (asked.keep or Path(tempfile.mkdtemp(prefix="al-same-"))).resolve()
    folder.mkdir(exist_ok=True)
    try:
        trees = Trees(folder, laid_out(asked.before, folder / "before"))
        if not trees.states.exists():
            trees.build()
        trees.work.mkdir(exist_ok=True)
        wrong = forgotten(trees)
        print("".join(f"DIFFERS {line}\n" for line in wrong), end="")
        for command in (one for one in COMMANDS if asked.only in one.name and not is_cut(one.name)):
            old, new = (trees.outcome(tree, command) for tree in (trees.before, ROOT))
            found = [(path, how) for path, how in differences(old, new) if not is_cut(command.name, path)]
            lines = [f"DIFFERS {command.name}: {path} {how}" for path, how in found]
            print(*(lines or [f"same {command.name}"]), sep="\n", flush=True)
            wrong += lines
    finally:
        if asked.keep is None:
            shutil.rmtree(folder)
    return int(bool(wrong))


def laid_out(before: str, folder: Path) -> Path:
    """The tree of a commit, in `folder`; or the folder that `before` is."""
    if Path(before).is_dir():
        return Path(before).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    archive = subprocess.run(["git", "archive", before], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
