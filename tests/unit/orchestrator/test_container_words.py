"""The program's command line inside its image, for each runtime that a config may name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import parse_config
from orchestrator.jobside import container_command

BINDS = ["/runs/toy", "/project", "/tmp/scratch"]
COMMAND = ["python3", "train.py"]
IMAGES = {
    "apptainer": ("x.sif", "/project/x.sif"),
    "singularity": ("/images/x.sif", "/images/x.sif"),
    "ch-run": ("image", "/project/image"),
    "podman": ("docker.io/me/x:1", "docker.io/me/x:1"),
    "pyxis": ("me/x:1", "me/x:1"),
}


def words_of(runtime: str, *, gpus: int = 1, image: str = "") -> list[str]:
    container: dict[str, Any] = {
        "image": image or IMAGES[runtime][0],
        "runtime": runtime,
        "binds": ["/data:/in"],
        "options": ["--more"],
    }
    config = parse_config({"container": container, "slurm": {"gpus": gpus, "cpus_per_task": 3}}, "c.json")
    assert config.container is not None
    return container_command(config.container.for_job(Path("/project"), config.slurm), COMMAND, BINDS, "/project")


@pytest.mark.parametrize("runtime", IMAGES)
def test_the_program_stands_behind_its_image_and_sees_its_folders(runtime: str) -> None:
    words = words_of(runtime)

    assert words[-2:] == COMMAND
    image = IMAGES[runtime][1]
    assert [word for word in words if image in word] == [f"--container-image={image}" if runtime == "pyxis" else image]
    assert words.index("--more") < len(words) - 2
    text = " ".join(words)
    assert all(bind in text for bind in (*BINDS, "/data:/in"))
    assert any(way in text for way in ("--pwd /project", "--cd=/project", "--workdir=/project", "-workdir=/project"))


def test_gpus_and_cores_reach_it() -> None:
    assert "--nv" in words_of("apptainer")
    assert "--nv" not in words_of("apptainer", gpus=0)
    assert "--device=nvidia.com/gpu=all" in words_of("podman")
    assert not any("gpu" in word for word in words_of("podman", gpus=0))
    assert "--cpus-per-task=3" in words_of("pyxis")
    mounts = "/runs/toy:/runs/toy,/project:/project,/tmp/scratch:/tmp/scratch,/data:/in"
    assert f"--container-mounts={mounts}" in words_of("pyxis")


def test_podman_is_in_the_jobs_control_group_knows_the_contract_and_takes_a_folder() -> None:
    words = words_of("podman", image="/images/root")
    assert words[words.index("/images/root") - 1] == "--rootfs"
    assert {"--cgroups=disabled", "--env=ANCHORLEG_*", "--env=PYTHON*", "--volume=/runs/toy:/runs/toy"} <= {*words}
