"""The ready configs of `examples/`: each is read and rendered, and the page beside them says what is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.config import RunConfig, check_walltime, load_config
from orchestrator.configwarnings import warnings_of
from orchestrator.notation import format_duration
from orchestrator.run.begin import rendered
from orchestrator.run.starting import check_script
from trainer.config.read import read_section
from trainer.config.section import resolve
from trainer.config.training import Training

FOLDER = Path(__file__).parents[3] / "examples"
#: Made for `make demo`, on one machine.
DEMO = "demo.json"
#: Plays for somebody else's training, and has none of its own.
ACTORS = "actors.json"
#: In YAML, for one machine: the fifth guide's.
VIDEO = "video.yaml"
NAMES = sorted(path.name for path in FOLDER.glob("*.json") if path.name not in {DEMO, ACTORS})
ROW = re.compile(r"^\| \[(.+)\]\((.+)\) \| .+ \| ([\d,]+) \| (\d+) \| (\d+) \| ([\d:]+) \|$", re.MULTILINE)


def an_example(name: str) -> tuple[RunConfig, Training]:
    config = load_config(FOLDER / name)
    return config, resolve(config.training_of(0))


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_config_gives_a_script_that_asks_for_what_it_says_and_names_no_site(name: str) -> None:
    config, _ = an_example(name)
    check_walltime(config, config.executor)
    lines = rendered(config, FOLDER / name, 0, {"PATH": "/usr/bin:/bin"}).splitlines()
    assert {f"#SBATCH --job-name={Path(name).stem}-0", "#SBATCH --cpus-per-task=8", "#SBATCH --gres=gpu:1"} <= set(
        lines
    )
    assert f"#SBATCH --time={format_duration(config.slurm.time_limit)}" in lines
    assert f"#SBATCH --mem={config.slurm.mem}" in lines
    assert not [line for line in lines if re.match("#SBATCH --(partition|account|qos|constraint)", line)]
    assert warnings_of(config) == []
    assert (config.executor, config.run_name, config.run_dir) == ("slurm", Path(name).stem, None)


@pytest.mark.trainer
@pytest.mark.parametrize("name", NAMES)
def test_a_ready_configs_training_fits_into_the_memory_that_it_asks_for(name: str) -> None:
    pytest.importorskip("torch")
    from trainer.envs.memory import need_bytes
    from trainer.training.memory import check

    config, training = an_example(name)
    assert config.slurm.mem is not None
    workers = config.slurm.cpus_per_task
    of_workers = need_bytes(training.num_envs, workers, len(training.env.tasks)) - need_bytes(training.num_envs, 0)
    check(training, "cpu", int(config.slurm.mem.removesuffix("G")) * 2**30 - of_workers)


def test_the_table_of_the_page_is_the_folder() -> None:
    rows = {row[1]: row for row in ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))}
    assert sorted(rows) == NAMES
    for name, (shown, _, steps, envs, slots, walltime) in rows.items():
        config, training = an_example(name)
        assert shown == name
        assert (steps, envs) == (f"{training.total_steps:,}", str(training.num_envs))
        assert (slots, walltime) == (str(config.slots), format_duration(config.slurm.time_limit))


def test_the_video_example_is_read_by_both_programs_and_says_what_the_guide_says() -> None:
    config, training = an_example(VIDEO)
    check_walltime(config, "local")
    assert (config.executor, config.run_name) == ("local", "video")
    assert warnings_of(config) == []
    assert read_section(FOLDER / VIDEO, None, []).training == training
    assert training.algorithm.name == "sac"
    assert (training.env.observation, training.env.frame_reach) == ("clips", 22)  # type: ignore[attr-defined]
    assert training.network.encoder.arch == "simple2dcnn"
    assert f"({VIDEO})" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((FOLDER / "programs").glob("*.json")), ids=lambda path: path.name)
def test_a_config_of_a_program_of_ones_own_names_its_program_and_what_it_reads(path: Path) -> None:
    config = load_config(path)
    check_walltime(config, "slurm")
    check_script(config, path.parent)
    command = config.command_of(0)
    assert command is not None
    assert Path(command[1]).stem == path.stem
    program = (FOLDER / "programs" / command[1]).read_text(encoding="utf-8")
    assert config.run_name == path.stem.replace("_", "-")
    for name in config.params:
        assert f'"{name}": ' in program or f"@{{{name}}}" in config.command, name  # type: ignore[operator]
    assert [config.settings_of(slot).get("seed", 0) for slot in range(config.slots)] == list(range(config.slots))
