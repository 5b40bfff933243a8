"""The image of `containers/` is built by its own Dockerfile, does what the page says of it, and trains."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container import host_env
from daemons import WORK_S
from image_build import Builder, folder_of_cpu_wheels, missing_build_parts, throw_away_folder
from needs import need
from relay import NewRelay

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.may_skip("pip knows no folder with a torch for the CPU"),
]

INSIDE = "/opt/venv/bin/python3"


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    """With its base; beside the tests' own folders, which pytest keeps."""
    need("the build of an image", missing_build_parts())
    if not folder_of_cpu_wheels():
        pytest.skip("pip knows no folder with a torch for the CPU here (find-links)")
    folder = Path(tempfile.mkdtemp(prefix="al-image-", dir="/var/tmp"))
    made = Builder(folder)
    try:
        made.make_base()
        yield made
    finally:
        throw_away_folder(folder)


@pytest.fixture(scope="module")
def image(builder: Builder) -> Path:
    """The image as a folder."""
    return builder.build()


def inside(image: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the image, with the image's own environment."""
    return subprocess.run(
        ["ch-run", "--write", f"--set-env={image}/ch/environment", str(image), "--", *command],
        env={name: value for name, value in host_env().items() if name != "TMPDIR"},
        capture_output=True, text=True, check=False, timeout=WORK_S,
    )  # fmt: skip


def test_the_image_verifies_what_the_guides_start_scripts_do(image: Path) -> None:
    done = inside(image, "python3", "/opt/anchorleg/verify.py")

    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["python"].startswith("3.11.")
    assert lines["torch"] == "2.13.0+cpu (no CUDA)"
    assert lines["CUDA available"] == "False"
    assert lines["Meta-World"] == "3.1.1"
    assert lines["MT10 tasks"] == "10"
    assert lines["rendered task"].startswith("reach-v3 by osmesa, ")
    no_gpu = inside(image, "python3", "/opt/anchorleg/verify.py", "--gpu")
    assert no_gpu.returncode == 1
    assert no_gpu.stdout.splitlines()[-1].startswith("no GPU: start the container with it")


def test_the_image_has_the_locked_versions_and_our_programs(image: Path) -> None:
    frozen = inside(image, INSIDE, "-m", "pip", "freeze").stdout.splitlines()
    there = dict(line.split("==") for line in frozen if "==" in line)
    locked = (Path(__file__).resolve().parents[2] / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in locked if "==" in line and not line.startswith("#"))
    shared = there.keys() & pinned.keys()
    assert {"torch", "mujoco", "metaworld", "gymnasium", "numpy", "pydantic"} <= shared
    assert {name: there[name].partition("+")[0] for name in shared} == {name: pinned[name] for name in shared}
    for program in ("orchestrator", "trainer", "syncd"):
        assert inside(image, program, "--help").returncode == 0
    # What the C stepper is compiled with, and nothing that a run has no use for.
    assert inside(image, "cc", "--version").returncode == 0
    assert not (image / "var/lib/apt/lists").exists() or not list((image / "var/lib/apt/lists").glob("*Packages*"))


def test_a_run_trains_in_the_image_and_the_doctor_looks_into_it(image: Path, new_relay: NewRelay) -> None:
    training: dict[str, Any] = {
        "preset": "debug", "tasks": ["reach-v3"], "total_steps": 400, "random_steps": 200, "checkpoint_interval": 200,
        "evaluation_goals": 1, "num_workers": 0, "device": "cpu",
    }  # fmt: skip
    relay = new_relay(
        command=None, training=training, slurm={"time_limit": "0:10:00"},
        container={"image": str(image), "runtime": "ch-run", "python": INSIDE},
    )  # fmt: skip

    seen = relay.run("doctor", "--probe", "--json", timeout_s=WORK_S)
    done = relay.run("start", timeout_s=WORK_S)

    found = {finding["check"]: finding["found"] for finding in json.loads(seen.out)["findings"]}
    assert "container" in found
    assert "torch 2.13.0+cpu" in found["program"]
    assert found["GPU"] == "torch uses the CPU in the container"
    assert seen.code == 0, seen.words
    assert done.code == 0, done.words + done.out
    assert relay.status()["slots"][0]["checkpoint_step"] == 400


def test_a_torch_of_the_other_kind_is_refused(image: Path) -> None:
    """The very script, in the finished image: pip finds that all is there."""
    done = inside(image, "sh", "-c", "cd /opt/anchorleg && sh install.sh python cuda")
    assert done.returncode == 1
    assert "VARIANT is cuda, and pip found a torch for cpu" in done.stderr
