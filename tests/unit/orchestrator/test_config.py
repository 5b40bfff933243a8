from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from refused import refused
from rich.console import Console

from orchestrator.commands.options import parse_overrides
from orchestrator.config import (
    RunConfig,
    check_mixing,
    check_walltime,
    load_config,
    parse_config,
    smallest_time_limit_s,
)
from orchestrator.configwarnings import warnings_of
from orchestrator.errors import ConfigError
from orchestrator.executors.slurm_text import MARK, Partition
from orchestrator.init import choose_partition, config_for, write_config
from orchestrator.run.starting import PythonFacts
from trainer.config.section import resolve

#: One object a line: a config, the identifier of its error (of the orchestrator), and some of its fields.
REFUSALS = Path(__file__).parents[2] / "fixtures/config_refusals.jsonl"
#: A config as users of an older program bring it along.
USERS_EXAMPLE: dict[str, Any] = {
    "run_name": "slim_run",
    "run_dir": "runs/slim_run",
    "training": {
        "total_steps": 5000000,
        "num_envs": 8,
        "batch_size": 64,
        "device": "cuda",
        "checkpoint_interval": 10000,
        "max_runtime_seconds": 13500,
        "stream": True,
        "stream_port": 9999,
        "stream_top_k": 2,
    },
    "collaboration": {"enabled": True, "shared_dir": "/project/scratch01/lab/shared_weights"},
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cluster_config.json"
    path.write_text(text)
    return path


class TestReading:
    def test_wrong_json_is_named_by_line_and_column(self, tmp_path: Path) -> None:
        with refused("config.document", why=re.compile("line 3, column 3")):
            load_config(written(tmp_path, '{\n  "slots": 2\n  "run_name": "x"\n}'))

    def test_a_config_survives_being_written_and_read(self) -> None:
        config = parse_config(USERS_EXAMPLE, "c.json")
        assert parse_config(config.model_dump(mode="json", exclude_unset=True), "c.json") == config

    def test_the_shipped_config_is_a_good_one(self) -> None:
        shipped = Path(__file__).parents[3] / "cluster_config.json"
        config = load_config(shipped)
        assert warnings_of(config) == []
        for executor in ("slurm", "local"):
            check_walltime(config, executor)


class TestMixing:
    def config(self, **more: Any) -> RunConfig:
        training = {"init_seed": 0, "group": {"mix": True}}
        return parse_config({"run_name": "x", "training": training, **more}, "c.json")

    def test_slots_that_train_the_same_are_taken(self) -> None:
        check_mixing(self.config(slots=2))
        check_mixing(self.config(slots=4, slot_overrides={str(slot): {"gamma": 0.9} for slot in (2, 3)}))
        check_mixing(self.config(slots=3, slot_overrides={"2": {"gamma": 0.9, "group": {"mix": False}}}))
        check_mixing(parse_config({"run_name": "x", "command": ["true"]}, "c.json"))

    @pytest.mark.parametrize(
        ("more", "name", "fields"),
        [
            ({}, "config.mix-alone", {}),
            (
                {"slots": 3, "slot_overrides": {"2": {"actor_hidden": [64, 64]}}},
                "config.mix-with-another",
                {"slot": 2, "differs": "actor_hidden [256, 256] → [64, 64]", "other": 0},
            ),
            (
                {"slots": 2, "slot_overrides": {"1": {"init_seed": 5}}},
                "config.mix-with-another",
                {"slot": 0, "differs": "another init_seed", "other": 1},
            ),
        ],
    )
    def test_who_would_mix_with_nobody_is_refused(self, more: dict[str, Any], name: str, fields: Any) -> None:
        with refused(name, **fields):
            check_mixing(self.config(**more))


class TestRefusals:
    @pytest.mark.parametrize("row", REFUSALS.read_text().splitlines())
    def test_what_cannot_be_is_one_error(self, row: str) -> None:
        case = json.loads(row)
        with pytest.raises(ConfigError) as caught:
            parse_config(case["config"], "c.json")
        assert case.get("error", caught.value.id) == caught.value.id
        fields = case.get("fields", {})
        assert {name: caught.value.fields.get(name) for name in fields} == fields


class TestWalltime:
    @pytest.mark.parametrize("executor", ["slurm", "local"])
    @pytest.mark.parametrize("lead", [1, 120, 600])
    def test_it_is_accepted_and_a_second_less_is_refused_with_the_sum(self, executor: str, lead: int) -> None:
        smallest = smallest_time_limit_s(lead, executor)
        for seconds, good in ((smallest, True), (smallest - 1, False)):
            limit = f"{seconds // 60}:{seconds % 60}"
            config = RunConfig.model_validate({"lead_seconds": lead, "slurm": {"time_limit": limit}})
            if good:
                check_walltime(config, executor)
            else:
                with refused("config.walltime-too-short", lead_s=lead, smallest_s=smallest):
                    check_walltime(config, executor)


class TestOverrides:
    def test_they_are_stronger_than_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, '{"slots": 2, "slurm": {"partition": "cpu", "gpus": 0}, "container": null}')
        overrides = {"slots": 3, "slurm.partition": "gpu", "container.image": "x.sif"}
        config = load_config(path, overrides)
        assert (config.slots, config.slurm.partition, config.slurm.gpus) == (3, "gpu", 0)
        assert config.container is not None
        assert config.container.image == "x.sif"

    @pytest.mark.parametrize(("typed", "value"), [("slots", 0), ("slurm.time_limit", "4h")])
    def test_what_was_typed_is_not_blamed_on_the_file(self, tmp_path: Path, typed: str, value: Any) -> None:
        path = written(tmp_path, '{"lead_seconds": "x"}')
        with refused("several") as caught:
            load_config(path, {typed: value})
        places = [(error.fields["where"], error.fields["field"]) for error in caught.value.fields["errors"]]
        assert sorted(places) == [(str(path), "lead_seconds"), ("the command line", typed)]

    def test_the_command_line_gives_json_or_text(self) -> None:
        sets = ["training.seed=3", "run_name=abc", 'slurm.extra=["--x=1"]', "slurm.setup=a=b", "wandb={}"]
        assert parse_overrides(sets, 4, "gpu", "1:00:00", None) == {
            "slots": 4,
            "slurm.partition": "gpu",
            "slurm.time_limit": "1:00:00",
            "training.seed": 3,
            "run_name": "abc",
            "slurm.extra": ["--x=1"],
            "slurm.setup": "a=b",
            "wandb": {},
        }

    @pytest.mark.parametrize("there", ['"sac"', '{"clip": 0.3}', '{"name": "ppo", "clip": 0.3}'])
    def test_what_is_typed_before_its_name_is_not_lost(self, tmp_path: Path, there: str) -> None:
        path = written(tmp_path, f'{{"training": {{"preset": "arm-ppo", "algorithm": {there}}}}}')
        config = load_config(path, {"training.algorithm.clip": 0.1, "training.algorithm": "ppo"})
        algorithm = resolve(config.training_of(0)).algorithm
        assert (algorithm.name, algorithm.clip) == ("ppo", 0.1)


class TestANewOne:
    HEADER = "PARTITION|AVAIL|TIMELIMIT|NODES|CPUS|MEMORY|GRES|"

    @pytest.fixture
    def sinfo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Shows with `-a` alone what is closed to us."""
        command = tmp_path / "sinfo"
        told = (self.HEADER, "closed|up|4:00:00|2|64|500000|gpu:a100:4|", "ours*|up|4:00:00|2|64|500000|(null)|")
        header, closed, ours = (line.replace("|", MARK) for line in told)
        shown = f'case " $* " in *" -a "*) echo "{closed}" ;; esac\necho "{ours}"'
        command.write_text(f'#!/bin/sh\necho "{header}"\n{shown}\n')
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return command

    @pytest.mark.parametrize(("asked", "chosen"), [(None, "ours"), ("closed", "closed")])
    def test_it_names_a_partition_that_we_may_use_or_the_one_asked_for(
        self, tmp_path: Path, sinfo: Path, asked: str | None, chosen: str
    ) -> None:
        write_config(tmp_path / "new.json", asked, force=False, out=Console(file=io.StringIO()))
        assert json.loads((tmp_path / "new.json").read_text())["slurm"]["partition"] == chosen

    @pytest.mark.parametrize(("without_gpus", "chosen"), [(True, ("ours", 0)), (False, ("closed", 1))])
    def test_a_partition_with_gpus_is_for_a_torch_that_can_use_them(
        self, tmp_path: Path, sinfo: Path, monkeypatch: pytest.MonkeyPatch, without_gpus: bool, chosen: tuple[str, int]
    ) -> None:
        told = PythonFacts(command=sys.executable, torch="CPU" if without_gpus else "GPU")
        monkeypatch.setattr("orchestrator.init.python_facts", lambda *_: told)
        shown = sinfo.read_text().replace('case " $* " in *" -a "*)', "case all in all)")
        sinfo.write_text(shown)
        said = io.StringIO()
        write_config(tmp_path / "new.json", None, force=False, out=Console(file=said))
        slurm = json.loads((tmp_path / "new.json").read_text())["slurm"]
        assert (slurm["partition"], slurm["gpus"]) == chosen
        assert ("has no CUDA" in said.getvalue()) is without_gpus

    @pytest.mark.parametrize(
        ("node", "gpus", "chosen"),
        [
            ({"nodes": 2, "cpus_per_node": 64, "memory_mb": 512_000, "gpus": {"a100": 4}}, True, (8, 1, "32G", 4)),
            ({"nodes": 1, "cpus_per_node": 12, "memory_mb": 64_000, "gpus": {"": 2}}, True, (6, 1, "28G", 2)),
            ({"nodes": 1, "cpus_per_node": 12, "memory_mb": 64_000, "gpus": {"": 2}}, False, (8, 0, "32G", 1)),
            ({"nodes": 1, "cpus_per_node": 4, "memory_mb": 1, "gpus": {}}, True, (4, 0, None, 1)),
        ],
    )
    def test_each_job_asks_for_its_share_of_a_node(self, node: dict[str, Any], gpus: bool, chosen: object) -> None:
        row = Partition(name="all", is_default=True, is_up=True, time_limit_s=None, **node)
        value = config_for(row, gpus=gpus)
        slurm = value["slurm"]
        assert (slurm["cpus_per_task"], slurm["gpus"], slurm.get("mem"), value["slots"]) == chosen

    def test_a_default_partition_that_gives_no_time_to_train_is_passed_over(self) -> None:
        same: dict[str, Any] = {"is_up": True, "nodes": 1, "cpus_per_node": 8, "memory_mb": 1, "gpus": {"": 1}}
        debug = Partition(name="debug", is_default=True, time_limit_s=60, **same)
        long = Partition(name="long", is_default=False, time_limit_s=86400, **same)
        assert choose_partition((debug, long), None).name == "long"
