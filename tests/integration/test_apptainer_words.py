"""What a job says to Apptainer, told by a stand-in for it: Apptainer itself is not to be had here."""

from __future__ import annotations

from pathlib import Path

import pytest
from relay import NewRelay

#: Says where it may unpack and how it was called, then runs what stands behind the image, outside of any container.
STAND_IN = """#!/bin/bash
echo "tmpdirs=$APPTAINER_TMPDIR $SINGULARITY_TMPDIR"
echo "scratch=$ANCHORLEG_SCRATCH"
for word in "$@"; do
    shift
    [ "${word##*/}" != a.sif ] || exec "$@"
    echo "word=$word"
done
"""


@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_enters_the_image_with_its_folders_and_unpacks_in_its_scratch_folder(
    new_relay: NewRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, gpus: int
) -> None:
    stand_in = tmp_path / "bin" / runtime
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=":")
    section = {"image": "a.sif", "runtime": runtime, "binds": ["/scratch"]}
    relay = new_relay(total=3, container=section, command=["python3", "./count.py", "3"], slurm={"gpus": gpus})

    done = relay.run("start")

    assert done.code == 0, done.words
    relay.assert_exactly_once(3)
    told = [line.split("=", 1) for line in next(relay.run_dir.glob("jobs/*/job-*.out")).read_text().splitlines()[:100]]
    said = {line[0]: line[1] for line in told if len(line) == 2}
    assert said["tmpdirs"] == f"{said['scratch']} {said['scratch']}"
    bound = [str(relay.run_dir), str(relay.folder), said["scratch"], "/scratch"]
    words = ["exec", *["--nv"] * gpus, "--pwd", str(relay.folder)]
    assert [line[1] for line in told if line[0] == "word"] == words + [w for one in bound for w in ("--bind", one)]
