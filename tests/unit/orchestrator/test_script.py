from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from orchestrator.config import RunConfig
from orchestrator.run.submission import job_script

HOSTILE = [
    "a b",
    "$(touch /tmp/owned)",
    "`id`",
    "'; rm -rf ~; '",
    '" && false "',
    "-rf",
    "a\nb",
    "*",
    "\\",
    "#",
    "!!",
    "~root",
    "@{python}",
    "",
]


def a_script(config: RunConfig | None = None, **more: str) -> str:
    values = {"job_dir": "/runs/x/jobs/s0-a0-00000000", "code_dir": "/runs/x/code/0", "python": "python3"} | more
    return job_script(
        config or RunConfig(),
        executor="slurm",
        run_name="mt10",
        slot=3,
        job_dir=Path(values["job_dir"]),
        code_dir=Path(values["code_dir"]),
        python=values["python"],
    )


def echoed_by_bash(script: str) -> str:
    return subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=PATIENCE_S).stdout.decode()


@pytest.mark.parametrize("value", ["/opt/my python/bin/python", "/x$(touch owned)/python", "/it's/python"])
def test_a_hostile_interpreter_stays_one_word_everywhere_in_the_script(value: str, tmp_path: Path) -> None:
    job_dir, code = tmp_path / "a 'job' $(touch owned)", tmp_path / "code;touch owned"
    job_dir.mkdir()
    script = a_script(python=value, job_dir=str(job_dir), code_dir=str(code))
    done = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 127
    assert f"there is no {value} on" in done.stderr
    assert not list(tmp_path.rglob("owned"))


def test_the_script_asks_for_what_the_config_says() -> None:
    slurm = {
        "partition": "gpu",
        "account": "lab",
        "qos": "long",
        "time_limit": "1-12",
        "cpus_per_task": 6,
        "gpus": 2,
        "gpu_type": "a100",
        "mem": "32G",
        "constraint": "ib&ssd",
        "exclude": "node[1-3]",
        "extra": ["--mail-type=FAIL"],
    }
    lines = a_script(RunConfig.model_validate({"slurm": slurm, "lead_seconds": 90})).splitlines()
    for option in (
        "--job-name=mt10-3",
        "--partition=gpu",
        "--account=lab",
        "--qos=long",
        "--time=1-12:00:00",
        "--cpus-per-task=6",
        "--gres=gpu:a100:2",
        "--mem=32G",
        "--constraint=ib&ssd",
        "--exclude=node[1-3]",
        "--mail-type=FAIL",
        "--signal=B:USR2@90",
        "--propagate=NONE",
        "--no-requeue",
    ):
        assert f"#SBATCH {option}" in lines


def test_no_option_comes_after_the_first_command_because_sbatch_stops_reading_there() -> None:
    lines = [line for line in a_script().splitlines() if line.strip()]
    first_command = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#SBATCH")]


def test_the_wake_up_is_ignored_before_any_of_the_users_lines_run() -> None:
    lines = a_script(RunConfig.model_validate({"slurm": {"setup": ["sleep 1"]}})).splitlines()
    assert lines.index("trap '' USR2") < lines.index("sleep 1") < len(lines) - 1
    assert lines[-1].startswith("exec ")


def test_one_process_is_one_task_and_ranks_are_shared_out_to_the_nodes() -> None:
    training = {"preset": "arm-ppo", "algorithm": {"name": "ppo", "shards": 4}}
    alone = a_script().splitlines()
    assert {"#SBATCH --nodes=1", "#SBATCH --ntasks=1"} <= set(alone)
    assert not [line for line in alone if "ntasks-per-node" in line]
    ranks = RunConfig.model_validate({"slurm": {"ranks": 4, "nodes": 2}, "training": training})
    lines = {"#SBATCH --nodes=2", "#SBATCH --ntasks=4", "#SBATCH --ntasks-per-node=2"}
    assert lines <= set(a_script(ranks).splitlines())


class TestModules:
    """`module load …` in slurm.setup, where bash does not know `module`: the scripts run as with `env -i`."""

    #: The files in which sites define it, wherever they keep it.
    USUAL = (
        "/etc/profile.d/lmod.sh",
        "/etc/profile.d/z00_lmod.sh",
        "/etc/profile.d/modules.sh",
        "/usr/share/lmod/lmod/init/bash",
        "/usr/share/modules/init/bash",
    )
    SETUP = ("set -euo pipefail", "module load cuda/12.4")

    def a_site(self, folder: Path, init: Path | None, **environ: str) -> dict[str, str]:
        """What a job begins with on a site that has its `module` in `init`."""
        if init is not None:
            init.parent.mkdir(parents=True, exist_ok=True)
            words = f'echo "$@" >>{shlex.quote(str(folder / "loaded"))}'
            init.write_text(f"export MODULESHOME=/opt/lmod\nmodule() {{ {words}; }}\n")
        return {"PATH": "/usr/bin:/bin", **environ}

    def loaded(self, folder: Path, environ: dict[str, str], *setup: str) -> list[str]:
        """What `module` was told by a whole script; of the usual places it finds those in `folder` alone."""
        job_dir = folder / "run" / "jobs" / "s0-a0-00000000"
        job_dir.mkdir(parents=True)
        config = RunConfig.model_validate({"slurm": {"setup": list(setup or self.SETUP)}})
        script = a_script(config, job_dir=str(job_dir), python="/bin/true")
        for usual in self.USUAL:
            assert script.count(usual) == 1
            script = script.replace(usual, shlex.quote(str(folder) + usual))
        subprocess.run(["bash", "-c", script], env=environ, cwd=job_dir, check=True, timeout=PATIENCE_S)
        told = folder / "loaded"
        return told.read_text().splitlines() if told.exists() else []

    @pytest.mark.parametrize("usual", USUAL)
    def test_it_comes_from_the_usual_places_where_the_named_folder_is_gone(self, tmp_path: Path, usual: str) -> None:
        environ = self.a_site(tmp_path, Path(str(tmp_path) + usual), MODULESHOME="/gone")
        assert self.loaded(tmp_path, environ) == ["load cuda/12.4"]


def test_without_ranks_nodes_and_tasks_are_the_users_to_ask_for_and_so_are_limits() -> None:
    extra = ["--ntasks=4", "--ntasks-per-node=2", "-N2", "-n 4", "--propagate=STACK"]
    lines = a_script(RunConfig.model_validate({"slurm": {"extra": extra}})).splitlines()
    first = max(lines.index("#SBATCH --ntasks=1"), lines.index("#SBATCH --propagate=NONE"))
    assert all(lines.index(f"#SBATCH {option}") > first for option in extra), "sbatch takes the last one"


@pytest.mark.parametrize("value", HOSTILE)
def test_bash_gets_every_hostile_value_back_as_it_was(value: str) -> None:
    word = a_script(python=value).partition('echo "there is no "')[2].partition('" on $(hostname)')[0]
    assert echoed_by_bash(f"printf %s {word}") == value
