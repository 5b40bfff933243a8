from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.commands.options import parse_overrides
from orchestrator.config import (
    EARLY_SIGNAL_S,
    START_UP_S,
    RunConfig,
    apply_overrides,
    check_mixing,
    check_walltime,
    load_config,
    parse_config,
    smallest_time_limit_s,
)
from orchestrator.configwarnings import warnings_of
from orchestrator.errors import ConfigError
from orchestrator.executors.slurm_text import MARK
from orchestrator.init import write_config
from trainer.config.algorithms import Mtsac
from trainer.config.section import resolve

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


def complaint(value: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(value, "c.json")
    return str(caught.value)


class TestReading:
    def test_an_empty_config_is_a_whole_run(self, tmp_path: Path) -> None:
        config = load_config(written(tmp_path, "{}"))
        assert (config.slots, config.executor, config.slurm.time_limit) == (1, "auto", 4 * 3600)

    def test_a_missing_file_is_named_with_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"nowhere\.json: there is no such config file.*orchestrator init"):
            load_config(tmp_path / "nowhere.json")

    def test_wrong_json_is_named_by_line_and_column(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cluster_config\.json, line 3, column 3: not valid JSON"):
            load_config(written(tmp_path, '{\n  "slots": 2\n  "run_name": "x"\n}'))

    @pytest.mark.parametrize("text", ["[]", "3", '"text"', "null"])
    def test_json_that_is_no_object_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigError, match="a config is a JSON object"):
            load_config(written(tmp_path, text))

    def test_a_folder_or_bytes_in_its_place_are_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(tmp_path)
        (tmp_path / "bytes.json").write_bytes(b"\xff\xf0")
        with pytest.raises(ConfigError, match="line 1: it is not in UTF-8"):
            load_config(tmp_path / "bytes.json")

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
        ("more", "words"),
        [
            ({}, "there is one slot, and nobody to mix its weights with. Set slots to 2 or more, or leave mix out."),
            (
                {"slots": 3, "slot_overrides": {"2": {"actor_hidden": [64, 64]}}},
                r"no other slot trains the same as slot 2 \(actor_hidden \[256, 256\] → \[64, 64\], against slot 0\)",
            ),
            ({"slots": 2, "slot_overrides": {"1": {"init_seed": 5}}}, r"as slot 0 \(another init_seed, against slot 1"),
        ],
    )
    def test_who_would_mix_with_nobody_is_refused_in_a_sentence(self, more: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigError, match=f"^training.group.mix: {'' if not more else '.*'}{words}"):
            check_mixing(self.config(**more))


class TestUnknownFields:
    @pytest.mark.parametrize(
        ("value", "where", "near"),
        [
            ({"slot": 2}, "slot", "slots"),
            ({"run_nam": "x"}, "run_nam", "run_name"),
            ({"slurm": {"partitoin": "gpu"}}, "slurm.partitoin", "partition"),
            ({"slurm": {"timelimit": "1:00:00"}}, "slurm.timelimit", "time_limit"),
            ({"training": {"batchsize": 64}}, "training.batchsize", "batch_size"),
            ({"container": {"image": "x.sif", "bind": []}}, "container.bind", "binds"),
        ],
    )
    def test_the_nearest_known_name_is_offered(self, value: dict[str, Any], where: str, near: str) -> None:
        assert f'c.json: {where}: there is no such field; did you mean "{near}"?' in complaint(value)

    def test_where_nothing_is_near_all_names_are_listed(self) -> None:
        text = complaint({"wandb": {"zzzzzz": 1}})
        assert "wandb.zzzzzz: there is no such field; known here: entity, group, mode, project, tags" in text

    def test_a_field_of_the_training_that_stands_beside_it_is_told_its_place(self) -> None:
        assert 'batch_size: there is no such field; did you mean "training.batch_size"?' in complaint({"batch_size": 3})

    def test_each_mistake_is_a_line_of_its_own(self) -> None:
        assert len(complaint({"slots": 0, "nonsense": 1, "slurm": {"gpus": -1}}).splitlines()) == 3

    def test_an_override_of_one_slot_is_checked_too(self) -> None:
        text = complaint({"slots": 2, "slot_overrides": {"1": {"learning_rat": 1e-3}}})
        assert 'slot_overrides.1: learning_rat: there is no such field; did you mean "learning_rate"?' in text


class TestImpossibleValues:
    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ({"slots": 0}, "slots"),
            ({"slots": "many"}, "slots"),
            ({"run_name": "two words"}, "run_name"),
            ({"run_name": "../elsewhere"}, "run_name"),
            ({"run_name": ""}, "run_name"),
            ({"executor": "kubernetes"}, "executor"),
            ({"lead_seconds": 0}, "lead_seconds"),
            ({"lead_seconds": 65536}, "lead_seconds"),
            ({"command": []}, "command: the list must not be empty"),
            ({"command": "python3 train.py"}, "command: a list is needed, in brackets: [...]"),
            ({"notify": "./tell.sh"}, "notify: a list is needed, in brackets: [...]"),
            ({"relay": []}, "relay: a section is needed, in braces: {...}"),
            ({"slurm": {"time_limit": "forever"}}, "slurm.time_limit"),
            ({"slurm": {"time_limit": "infinite"}}, "slurm.time_limit"),
            ({"slurm": {"mem": "lots"}}, "slurm.mem"),
            ({"slurm": {"extra": ["gres=gpu:1"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["--signal=USR1@10"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["-J other"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["--clusters=other"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["-Mother"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["--output elsewhere"]}}, "slurm.extra"),
            ({"slurm": {"extra": ["--mail-type=ALL\nrm -rf ~"]}}, "slurm.extra"),
            ({"slot_overrides": {"1": {}}}, "slot_overrides"),
            ({"slot_overrides": {"first": {}}}, "slot_overrides"),
            ({"training": {"preset": "guid"}}, "training.preset"),
            ({"training": {"benchmark": "MT11"}}, "training.benchmark"),
            ({"training": {"tasks": ["reach-v2"]}}, "training.tasks"),
            ({"training": {"batch_size": 5, "benchmark": "MT10"}}, "batch_size"),
            ({"training": {"learning_rate": -1}}, "training.learning_rate"),
        ],
    )
    def test_one_sentence_names_the_field(self, value: dict[str, Any], words: str, request: Any) -> None:
        text = complaint(value)
        assert text.startswith("c.json: ")
        assert words in text
        assert len(text.splitlines()) == 1

    @pytest.mark.parametrize("key", ["01", "\N{SUPERSCRIPT TWO}"])
    def test_a_slot_number_that_is_not_written_plainly_is_refused(self, key: str) -> None:
        text = complaint({"slots": 3, "slot_overrides": {key: {"seed": 5}}})
        assert f'there is no slot "{key}"' in text

    def test_a_seed_that_leaves_no_room_for_the_last_slot_is_refused(self) -> None:
        assert "seed" in complaint({"slots": 2, "training": {"seed": 2**32 - 1}})


class TestWalltime:
    def test_the_smallest_one_leaves_lead_start_up_and_the_early_signal(self) -> None:
        assert smallest_time_limit_s(120, "slurm") == 120 + EARLY_SIGNAL_S + START_UP_S
        assert smallest_time_limit_s(120, "local") == 120 + START_UP_S

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
                with pytest.raises(ConfigError, match=rf"slurm\.time_limit.*{lead}.*= {smallest} s"):
                    check_walltime(config, executor)

    def test_minutes_may_be_written_as_a_number(self) -> None:
        assert RunConfig.model_validate({"slurm": {"time_limit": 240}}).slurm.time_limit == 4 * 3600

    def test_a_run_file_has_it_as_slurm_writes_it(self) -> None:
        config = RunConfig.model_validate({"slurm": {"time_limit": 90}})
        assert config.model_dump(mode="json", exclude_unset=True) == {"slurm": {"time_limit": "1:30:00"}}
        assert RunConfig.model_validate(config.model_dump(exclude_unset=True)) == config


class TestTheUsersExample:
    def test_it_loads_and_means_what_it_says(self, tmp_path: Path) -> None:
        config = load_config(written(tmp_path, json.dumps(USERS_EXAMPLE)))
        training = resolve(config.training)
        assert (training.num_envs, training.off_policy.batch_size, training.device) == (8, 64, "cuda")

    def test_nothing_of_it_is_warned_of(self) -> None:
        assert warnings_of(parse_config(USERS_EXAMPLE, "c.json")) == []

    def test_a_learning_rate_that_is_zero_before_the_end_is_warned_of(self) -> None:
        training = {"preset": "arm-a2c", "learning_rate_steps": 5000}
        [warning] = warnings_of(parse_config({"training": training}, "c"))
        assert warning.startswith("training.learning_rate_steps: the learning rate is 0 from step 5,000 on")
        assert warnings_of(parse_config({"training": {"preset": "arm-a2c"}}, "c")) == []


class TestOverrides:
    def test_they_are_stronger_than_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, '{"slots": 2, "slurm": {"partition": "cpu", "gpus": 0}, "container": null}')
        overrides = {"slots": 3, "slurm.partition": "gpu", "container.image": "x.sif"}
        config = load_config(path, overrides)
        assert (config.slots, config.slurm.partition, config.slurm.gpus) == (3, "gpu", 0)
        assert config.container is not None
        assert config.container.image == "x.sif"

    def test_a_wrong_one_is_named_like_a_wrong_field(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r'slurm\.partitoin: there is no .*"partition"'):
            load_config(written(tmp_path, "{}"), {"slurm.partitoin": "gpu"})

    @pytest.mark.parametrize(("typed", "value"), [("slots", 0), ("slurm.time_limit", "4h")])
    def test_what_was_typed_is_not_blamed_on_the_file(self, tmp_path: Path, typed: str, value: Any) -> None:
        path = written(tmp_path, '{"lead_seconds": "x"}')
        with pytest.raises(ConfigError) as error:
            load_config(path, {typed: value})
        lines = str(error.value).splitlines()
        assert sum(line.startswith(f"the command line: {typed}: ") for line in lines) == 1
        assert sum(line.startswith(f"{path}, line 1: lead_seconds: ") for line in lines) == 1

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

    def test_a_setting_of_a_training_lies_as_deep_as_its_dots(self, tmp_path: Path) -> None:
        path = written(tmp_path, '{"training": {"algorithm": "sac", "observation": "clips"}}')
        config = load_config(path, {"training.network.encoder.arch": "simple2dcnn"})
        assert resolve(config.training_of(0)).network.encoder.arch == "simple2dcnn"

    @pytest.mark.parametrize("there", ['"sac"', '{"clip": 0.3}', '{"name": "ppo", "clip": 0.3}'])
    def test_what_is_typed_before_its_name_is_not_lost(self, tmp_path: Path, there: str) -> None:
        path = written(tmp_path, f'{{"training": {{"preset": "arm-ppo", "algorithm": {there}}}}}')
        config = load_config(path, {"training.algorithm.clip": 0.1, "training.algorithm": "ppo"})
        algorithm = resolve(config.training_of(0)).algorithm
        assert (algorithm.name, algorithm.clip) == ("ppo", 0.1)

    @pytest.mark.parametrize("item", ["training.seed", "=3", ""])
    def test_what_is_no_assignment_is_refused(self, item: str) -> None:
        with pytest.raises(ConfigError, match="--set"):
            parse_overrides([item], None, None, None, None)

    @given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), st.integers())
    def test_a_dotted_path_reaches_its_place(self, path: list[str], new: int) -> None:
        value: Any = apply_overrides({"a": {"b": 1}, "c": 5}, {".".join(path): new})
        for name in path:
            value = value[name]
        assert value == new


class TestTheTrainingOfASlot:
    def test_slot_k_trains_with_seed_plus_k(self) -> None:
        config = parse_config({"slots": 3, "training": {"seed": 40}}, "c")
        assert [config.training_of(slot).seed for slot in range(3)] == [40, 41, 42]

    def test_its_overrides_are_stronger_also_for_the_seed(self) -> None:
        value = {"slots": 2, "slot_overrides": {"1": {"seed": 7, "learning_rate": 0.001}}}
        config = parse_config(value, "c")
        first, second = (resolve(config.training_of(slot)) for slot in range(2))
        assert first.algorithm == Mtsac()
        assert (second.seed, second.algorithm) == (7, Mtsac(learning_rate=0.001))


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
        monkeypatch.setattr("orchestrator.init.has_torch_without_gpus", lambda _: without_gpus)
        shown = sinfo.read_text().replace('case " $* " in *" -a "*)', "case all in all)")
        sinfo.write_text(shown)
        said = io.StringIO()
        write_config(tmp_path / "new.json", None, force=False, out=Console(file=said))
        slurm = json.loads((tmp_path / "new.json").read_text())["slurm"]
        assert (slurm["partition"], slurm["gpus"]) == chosen
        assert ("without CUDA" in said.getvalue()) is without_gpus

    def test_where_all_are_hidden_one_must_be_named(self, tmp_path: Path, sinfo: Path) -> None:
        sinfo.write_text(f"#!/bin/sh\necho '{self.HEADER.replace('|', MARK)}'\n")
        with pytest.raises(ConfigError, match="name one with --partition"):
            write_config(tmp_path / "new.json", None, force=False, out=Console(file=io.StringIO()))
