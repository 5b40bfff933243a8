"""The simulator's models beside what they stand for: the shim and its program, and the files of one machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S
from hypothesis import given, settings
from hypothesis import strategies as st
from job_model import Run
from memory_disk import MemoryDisk, MemoryPath, Server
from profiles import Profile
from world import World

from orchestrator.decisions.models import make_token
from orchestrator.disk import LOCAL_DISK, Disk

ROOT = Path(__file__).parents[2]
TOKEN = make_token(0, 1, "0123abcd")

PROGRAM = """
import os, sys, time
from pathlib import Path
from anchorleg.job import HANDED_OVER, Job
job = Job.from_environment()
job.listen()
start = job.choose_parent(lambda ref: True)
how, step = sys.argv[1], (start.step if start else 0) + 10
def save(total):
    if job.superseded_by() is None:
        (job.attempt_dir / "checkpoints" / str(step)).mkdir(parents=True)
        job.report(step=step, total=total, checkpoint_step=step)
job.report(step=step, total=1000, checkpoint_step=0)
if how == "crash":
    sys.exit(1)
if how == "stall":  # a controller noticed
    (job.hand_over_file.parent / "abort").touch()
if how == "finish":
    save(step)
    sys.exit(0)
while how == "stall" or not job.hand_over_reason():
    time.sleep(0.02)
save(1000)
sys.exit(HANDED_OVER)
"""

#: What is on the disk before the job begins. `dies`: how the program behaves.
CASES: dict[str, dict[str, Any]] = {
    "it finishes": {"how": "finish"},
    "it is asked by the file": {"how": "go on", "job_files": ["hand-over"]},
    "it crashes": {"how": "crash"},
    "it stalls and is aborted": {"how": "stall", "job_files": ["abort"]},
    "the attempt is taken": {"how": "go on", "files": {"1/claim": {"token": "other", "job_id": "9", "host": "n9"}}},
    "a higher attempt is claimed": {"how": "go on", "files": {"2/claim": {"token": "other", "job_id": "9"}}},
    "it is not needed: the slot is held": {"how": "go on", "ahead": True, "hold": True},
    "it is not needed: the one before failed": {
        "how": "go on", "ahead": True, "files": {"0/exit.json": {"token": "before", "code": 1}},
    },
    "it is not needed: the one before was told to end": {
        "how": "go on", "ahead": True, "files": {"0/exit.json": {"token": "before", "code": 75, "terminated": True}},
    },
    "it is needed: the one before handed over": {
        "how": "crash", "ahead": True, "files": {"0/exit.json": {"token": "before", "code": 75, "asked": "deadline"}},
    },
    "it goes on from the one before": {
        "how": "crash",
        "files": {"0/parent.json": {"attempt": None, "step": 0, "checkpoint": None}},
        "checkpoints": ["0/300", "0/50"],
    },
}  # fmt: skip


def left_by_the_shim(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the real shim leaves in the attempt's folder."""
    run_dir, job_dir = folder / "run", folder / "run/jobs" / TOKEN
    attempts = run_dir / "slots/0/attempts"
    job_dir.mkdir(parents=True)
    attempts.mkdir(parents=True)
    for name, value in case.get("files", {}).items():
        (attempts / name).parent.mkdir(exist_ok=True)
        (attempts / name).write_text(json.dumps(value))
    for name in case.get("checkpoints", []):
        (attempts / name.replace("/", "/checkpoints/")).mkdir(parents=True)
    for name in set(case.get("job_files", [])) - {"abort"}:
        (job_dir / name).touch()
    if case.get("hold"):
        (run_dir / "slots/0/hold").write_text("{}")
    (folder / "program.py").write_text(PROGRAM)
    spec = {
        "token": TOKEN, "run_dir": str(run_dir), "slot": 0, "attempt": 1, "folder": str(folder), "limit_s": 3600,
        "command": [sys.executable, "program.py", case["how"]], "lead_s": 5,
        "max_runtime_s": None, "heartbeat_s": 0.3, "ahead": case.get("ahead", False),
    }  # fmt: skip
    (job_dir / "job.json").write_text(json.dumps(spec))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.shim"], cwd=job_dir, env=env, check=False, timeout=PATIENCE_S,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    folder = attempts / "1"
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    return {name: json.loads((folder / name).read_bytes()) for name in names if name != "checkpoints"} | (
        {"checkpoints": len(list((folder / "checkpoints").iterdir()))} if "checkpoints" in names else {}
    )


def left_by_the_model(case: dict[str, Any]) -> dict[str, Any]:
    """What the modelled one leaves, in a world where nothing else happens."""
    world = World(Profile(seed=0))
    slot_dir = world.paths.slot(0)
    attempts = f"{slot_dir}/attempts"
    for name, value in case.get("files", {}).items():
        world.server.write("login1", f"{attempts}/{name}", json.dumps(value).encode())
    for name in case.get("checkpoints", []):
        attempt, step = name.split("/")
        world.server.make_folder("n1", f"{attempts}/{attempt}/checkpoints/{step}")
        world.watch.checkpoints.setdefault((0, int(attempt)), []).append((int(step), 0.0))
    job_dir = str(world.paths.job(TOKEN))
    for name in ["job.json", *case.get("job_files", [])]:
        spec = {"ahead": case.get("ahead", False)}
        world.server.write("login1", f"{job_dir}/{name}", json.dumps(spec).encode())
    if case.get("hold"):
        world.server.write("login1", f"{slot_dir}/hold", b"{}")
    if case["how"] in {"crash", "stall"}:
        world.fate = lambda _slot: (case["how"], 1.0)  # type: ignore[method-assign]
    world.total = lambda _slot: 10_000 if case["how"] == "finish" else 10**9  # type: ignore[method-assign]
    job = world.cluster.accept(job_dir, None, ())
    assert job is not None
    if "2/claim" in case.get("files", {}):
        world.watch.top_claims[0] = 2
    world.timeline.run_until(world.timeline.now + 300.0)
    run = job.run
    assert isinstance(run, Run)
    run.look_soon(0.0)
    world.timeline.run_until(world.timeline.now + 900.0)
    assert not run.alive
    folder = f"{attempts}/1"
    found: dict[str, Any] = {}
    for name in world.server.names(None, folder):
        if name == "checkpoints":
            found[name] = len(world.server.names(None, f"{folder}/checkpoints"))
        else:
            found[name] = world.server.json_or_none(None, f"{folder}/{name}")
    return found


def comparable(left: dict[str, Any]) -> dict[str, Any]:
    """Names, fields and decisions; not times, hosts, pids and digests. Some hold only what nobody decides by."""
    passing = {"at", "pid", "host", "job_id", "step", "asked_at", "started_at", "first_progress_at", "checkpoint_step"}
    told = {"deadline", "given", "newest"}
    shown: dict[str, Any] = {}
    for name, value in left.items():
        plain = "duplicate" if name.startswith("duplicate-") else name
        if plain in {"heartbeat.json", "progress.json"}:
            shown[plain] = plain == "progress.json" or "beat" in value
        elif isinstance(value, dict):
            kept = {key: item is not None if key in told else item for key, item in value.items() if key not in passing}
            shown[plain] = kept if plain != "parent.json" else value
        else:
            shown[plain] = value
    return shown


@pytest.mark.parametrize("name", CASES)
def test_the_model_of_a_job_leaves_what_the_shim_leaves(name: str, tmp_path: Path) -> None:
    real, modelled = comparable(left_by_the_shim(CASES[name], tmp_path)), comparable(left_by_the_model(CASES[name]))
    assert modelled == real


NAMES = st.sampled_from(["a", "b", "c/d", "c/e"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "create", "remove", "touch", "append", "remove_tree", "make_folder"]), NAMES),
    max_size=12,
)


def after(disk: Disk, root: Any, steps: list[tuple[str, str]]) -> list[Any]:
    """What each step answered, and what is there in the end."""
    answers: list[Any] = []
    disk.make_folder(root, exist_ok=True)
    disk.make_folder(root / "c")
    for number, (what, name) in enumerate(steps):
        path = root / "c" if what == "remove_tree" else root / "f" if what == "make_folder" else root / name
        more = (f"{number}".encode(),) if what in {"write", "create"} else ({"n": number},) if what == "append" else ()
        try:
            answers.append(getattr(disk, what)(path, *more))
        except OSError as error:
            answers.append(type(error).__name__)
    answers += [disk.read(root / name) if disk.exists(root / name) else None for name in ("a", "b", "c/d", "c/e")]
    return [*answers, sorted(disk.names(root)), sorted(disk.names(root / "c")), disk.names(root / "nothing")]


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_the_folder_in_memory_answers_as_the_real_one(steps: list[tuple[str, str]], tmp_path_factory: Any) -> None:
    in_memory = MemoryDisk(Server(lambda: 0.0, lambda: 0.0), "n1")
    real = after(LOCAL_DISK, tmp_path_factory.mktemp("disk"), steps)
    assert after(in_memory, MemoryPath("/disk"), steps) == real


def test_what_another_machine_wrote_shows_late_and_a_claim_is_exclusive_all_the_same() -> None:
    now = [0.0]
    server = Server(lambda: now[0], lambda: 30.0)
    mine, other = MemoryDisk(server, "n1"), MemoryDisk(server, "n2")
    folder = MemoryPath("/run")
    mine.make_folder(folder)
    assert mine.create(folder / "claim", b"mine")
    assert mine.read(folder / "claim") == b"mine"
    assert (other.exists(folder / "claim"), other.names(folder)) == (False, [])
    assert not other.create(folder / "claim", b"its")
    assert other.read(folder / "claim") == b"mine"
    mine.write(folder / "state", b"1")
    now[0] = 31.0
    mine.write(folder / "state", b"2")
    assert (mine.read(folder / "state"), other.read(folder / "state")) == (b"2", b"1")
