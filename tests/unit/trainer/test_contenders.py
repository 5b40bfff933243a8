"""Which trainings are one contender, what contenders are called, and which are not compared at all."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import pytest
from long_history import with_its_peak, write_long_history

pytest.importorskip("torch")


from refused import refused

from trainer.commands.compare import chosen_of, compare
from trainer.config.presets import PRESETS
from trainer.config.read import read_section
from trainer.config.section import TrainingSection, resolve
from trainer.errors import ConfigError
from trainer.nets.weights import WEIGHTS
from trainer.showing.comparetable import not_apart
from trainer.showing.contenders import contenders_at
from trainer.training.inputs import DEMOS
from trainer.tuning import contest

pytestmark = pytest.mark.trainer


def a_training(**fields):
    return resolve(TrainingSection(**{"preset": "arm-ppo", "num_workers": 0, **fields}))


@pytest.fixture
def trained(tmp_path):
    """Makes a folder of a training that was evaluated once."""

    def made(**fields):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        slot = folder / "slots/0"
        (slot / "attempts/0").mkdir(parents=True)
        (slot / "config.json").write_text(json.dumps(a_training(**fields).model_dump(mode="json")))
        (slot / "attempts/0/claim").write_text("{}")
        (slot / "attempts/0/parent.json").write_text(json.dumps({"attempt": None, "step": None}))
        row = {"attempt": 0, "from": 0, "to": 100, "step": 100, "at": 1.0}
        (slot / "attempts/0/metrics.jsonl").write_text(json.dumps(row) + "\n")
        told = {**row, "goals_per_task": 2, "success": {"reach": 0.5}, "mean_success": 0.5, "returns": {"reach": 1.0}}
        (slot / "attempts/0/evaluations.jsonl").write_text(json.dumps(told) + "\n")
        return folder

    return made


def named(*folders):
    return {one.name: [seeded.seed for seeded in one.seeds] for one in contenders_at(folders)}


def test_seeds_and_what_changes_nothing_that_is_learned_are_one_contender(trained):
    idle = {"checkpoint_interval": 77, "num_workers": 2, "threads": 2, "keep_checkpoints": 9, "evaluation_interval": 50}
    assert named(trained(), trained(seed=1), trained(seed=2, **idle)) == {"ppo": [0, 1, 2]}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"gamma": 0.9}, "gamma=0.9"),
        ({"actor_hidden": [8]}, "actor_hidden=[8]"),
        ({"num_envs": 4}, "num_envs=4"),
        ({"total_steps": 5000}, "total_steps=5000"),
        ({"normalise_obs": False, "clip": 0.1}, "clip=0.1 normalise_obs=false"),
    ],
)
def test_contenders_of_one_algorithm_are_named_by_what_differs(trained, fields, name):
    found = named(trained(), trained(**fields), trained(seed=1, **fields), trained(algorithm="a2c"))
    assert found["a2c"] == [0]
    (own,) = [one for one, seeds in found.items() if seeds == [0, 1]]
    assert own.startswith("ppo ")
    assert set(own.split()[1:]) == set(name.split())
    assert len(found) == 3


def test_presets_that_differ_name_their_contenders(trained):
    assert named(trained(), trained(preset="guide", env="arm", algorithm="ppo")) == {
        "ppo (arm-ppo)": [0],
        "ppo (guide)": [0],
    }


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"group": {"rows": True, "mix_every": 7}}, 'mtsac group={"rows":true}'),
        ({"group": {"rows": True, "share": 0.1}}, 'mtsac group={"rows":true,"share":0.1}'),
        ({"group": {"adopt": True, "share": 0.1}}, 'mtsac group={"adopt":true}'),
        ({"group": {"share": 0.1}}, None),  # nobody gives anything
        ({"init_seed": 0}, "mtsac init_seed=0"),
    ],
)
def test_what_slots_give_each_other_and_where_nets_begin_tell_contenders_apart(trained, fields, name):
    found = named(trained(preset="debug"), trained(preset="debug", seed=1, **fields))
    assert found == ({"mtsac": [0, 1]} if name is None else {"mtsac": [0], name: [1]})


def test_slots_of_one_run_that_give_nothing_are_not_of_the_group_of_those_that_do(trained):
    run, giving = trained(preset="debug"), trained(preset="debug", seed=1, group={"rows": True})
    rows = giving / "slots/0/attempts/0/metrics.jsonl"
    rows.write_text(json.dumps({**json.loads(rows.read_text()), "group": {"rows": 7}}) + "\n")
    shutil.copytree(giving / "slots/0", run / "slots/1")
    assert named(run) == {"mtsac": [0], 'mtsac group={"rows":true}': [1]}


def test_a_slot_counts_once_however_often_it_is_named(trained):
    run, other = trained(), trained(seed=1)
    assert named(run, run / "slots/0", other, run) == {"ppo": [0, 1]}


def sac_with(**demos):
    return {"preset": "arm-sac", "algorithm": {"name": "sac", **demos}}


def test_demonstrations_go_by_their_sum_and_not_by_where_they_lie(trained):
    one, other = "ab" * 32, "cd" * 32
    told = [sac_with(demos=place, demos_sha256=one) for place in ("/a", "/b")]
    assert named(trained(**told[0]), trained(seed=1, **told[1])) == {"sac": [0, 1]}
    kept = [trained(seed=seed, **sac_with(demos=f"/{seed}")) for seed in (2, 3)]
    assert len(named(*kept)) == 2  # nobody says that they are the same
    for run in kept:
        (run / "slots/0" / DEMOS / one).mkdir(parents=True)
    assert named(trained(**told[0]), *kept) == {"sac": [0, 2, 3]}
    again = trained(seed=4, **sac_with(demos="/a", demos_sha256=other))
    assert named(trained(**told[0]), again) == {f"sac demos={'ab' * 6}": [0], f"sac demos={'cd' * 6}": [4]}


def test_weights_go_by_their_sum_and_not_by_where_they_lie(trained):
    sees = {"env": {"name": "spots:Spots", "observation": "both", "image_size": 32}, "algorithm": "sac"}

    def run(seed, place):
        encoder = {"arch": "spots:Eye", "weights": place}
        found = trained(preset="guide", seed=seed, **sees, network={"encoder": encoder})
        (found / "slots/0" / WEIGHTS).mkdir()
        return found

    runs = [run(0, "/a.safetensors"), run(1, "/b.safetensors")]
    assert len(named(*runs)) == 2
    for one in runs:
        (one / "slots/0" / WEIGHTS / f"{'ab' * 32}.safetensors").touch()
    assert named(*runs) == {"sac": [0, 1]}


@pytest.mark.parametrize(
    ("fields", "what"),
    [({"horizon": 30}, r"horizon 100 → 30"), ({"preset": "cartpole-ppo"}, r"env arm → gymnasium")],
)
def test_different_environments_are_not_compared(trained, fields, what):
    one, other = trained(), trained(**fields)
    with pytest.raises(ConfigError, match=what) as caught:
        contenders_at([one, trained(seed=1), other])
    assert str(one) in str(caught.value)
    assert str(other) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rate_that_falls_until_the_end_follows_the_total():
    for preset in ("arm-a2c", "cartpole-ppo"):
        assert resolve(TrainingSection(preset=preset)).falling_steps == 100_000
        assert read_section(None, preset, ["total_steps=5000"]).training.falling_steps == 5000
        assert (
            read_section(None, preset, ["total_steps=9000", "learning_rate_steps=9500"]).training.falling_steps == 9500
        )
        assert read_section(None, preset, ["learning_rate_steps=0"]).training.falling_steps == 0
    assert read_section(None, "tiny", []).training.falling_steps == 0


def test_a_rate_that_is_zero_before_the_end_is_warned_of():
    told = read_section(None, "arm-a2c", ["learning_rate_steps=4000", "total_steps=5000"]).warnings
    assert len(told) == 1
    assert told[0].startswith("learning_rate_steps: the learning rate is 0 from step 4,000 on")
    for steps in ("5000", "0", "total", "9000"):
        assert read_section(None, "arm-a2c", [f"learning_rate_steps={steps}", "total_steps=5000"]).warnings == ()
    assert a_training().warnings_of() == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (["algorithm=td3", "value_limit=50"], "value_limit"),
        (["algorithm=td3", "value_bins=51"], "value_bins"),
        (["observation=cameras", "encoder.freeze=true", "encoder.lr_scale=0.1"], "encoder.lr_scale"),
        (["encoder.arch=impala"], "encoder.arch"),
        (["encoder.features=64"], "encoder.features"),
        (["encoder.freeze=true"], "encoder.freeze"),
        (["encoder.lr_scale=0.1"], "encoder.lr_scale"),
        (["encoder.over_time=mean"], "encoder.over_time"),
        (["algorithm=mtsac", "env=gymnasium", "env.id=CartPole-v1", "encoder.arch=impala"], "encoder.arch"),
        (["algorithm=drqv2", "encoder.arch=impala"], "encoder.arch"),
        (["env=gymnasium", "env.id=ALE/Pong-v5", "encoder.freeze=true", 'encoders={"image":"drq"}'], "encoder.freeze"),
        (["observation=cameras", "frame_stride=4"], "frame_stride"),
        (["observation=clips", "encoder.over_time=mean"], "encoder.over_time"),
        (["demos_share=0.25"], "demos_share"),
    ],
)
def test_what_nothing_reads_is_warned_of(fields, name):
    told = read_section(None, "arm-sac", fields).warnings
    assert [words.partition(":")[0] for words in told] == [name]


@pytest.mark.parametrize(
    "fields",
    [
        ["algorithm=drqv2"],  # whose encoder nobody asked for
        ["algorithm=drqv2", "encoder.arch=drq"],
        ["env=gymnasium", "env.id=ALE/Pong-v5", "encoder.arch=impala"],  # it may give pictures
        ['encoders={"state":"spots:Eye"}', "encoder.lr_scale=0.1"],
        ["observation=both", 'encoders={"state":"spots:Eye"}', "encoder.freeze=true", "encoder.lr_scale=0.1"],
    ],
)
def test_an_encoders_setting_that_something_reads_is_not_warned_of(fields):
    assert read_section(None, "arm-sac", fields).warnings == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            ["algorithm=sac", "random_steps=1000", "total_steps=1000"],
            "random_steps: the first 1,000 steps are without updates, and there are 1,000 (total_steps): nothing is ",
        ),
        (["algorithm=sac", "random_steps=1000", "total_steps=1001"], None),
        (["algorithm=sac", "random_steps=1000", "total_steps=999", "num_envs=7"], None),  # 1,001 are made
        (
            ["algorithm=ppo", "total_steps=1000"],
            "rollout_steps: a rollout is 2,048 steps of all environments, and there are 1,000 (total_steps): nothing ",
        ),
        (["algorithm=ppo", "total_steps=2041"], None),  # 2,048 are made
        (["algorithm=ppo", "total_steps=2040"], "rollout_steps: a rollout is 2,048 steps"),
    ],
)
def test_a_training_that_is_over_before_its_first_update_is_warned_of(fields, words):
    told = read_section(None, None, ["env=arm", *fields]).warnings
    assert [one.startswith(words) for one in told] == ([True] if words else [])


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_is_warned_of(preset):
    assert resolve(TrainingSection(preset=preset)).warnings_of() == []


def test_what_is_set_is_for_each_that_is_compared_and_they_differ_in_their_algorithm():
    chosen = chosen_of(["ppo", "a2c"], 500, None, None, ["env=arm", "algorithm.gamma=0.9"])
    assert [(one.algorithm.name, one.algorithm.gamma) for one in chosen.values()] == [("ppo", 0.9), ("a2c", 0.9)]
    with refused("config.unknown-field", field="algorithm.clip"):
        chosen_of(["ppo", "a2c"], 500, None, None, ["env=arm", "algorithm.clip=0.1"])


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("total_steps=200000", "--steps"),
        ("training.total_steps=200000", "--steps"),
        ("algorithm=sac", "--algorithms"),
        ("algorithm.name=sac", "--algorithms"),
    ],
)
def test_what_an_option_of_compare_says_of_each_is_not_set_beside_it(setting, option):
    for name in ("ppo", "arm-ppo"):
        with refused("compare.set-of-option", setting=setting, option=option):
            chosen_of([name], 500, None, None, ["env=arm", setting])


@pytest.mark.parametrize(
    ("name", "file", "preset", "settings", "evaluated", "saved"),
    [
        ("ppo", {}, None, [], 5_000, 5_000),
        ("ppo", {}, "guide", [], 5_000, 5_000),
        ("guide", {}, None, ["num_envs=5"], 5_000, 5_000),
        ("ppo", {}, None, ["evaluation_interval=200000"], 200_000, 5_000),
        ("ppo", {"checkpoint_interval": 20_000}, None, [], 5_000, 20_000),
        ("ppo", {}, "arm-td3", [], 25_000, 25_000),
        ("arm-td3", {}, None, [], 25_000, 25_000),
        ("mclean", {}, None, [], 200_000, 100_000),
    ],
)
def test_where_nobody_says_how_often_each_tenth_is_evaluated(tmp_path, name, file, preset, settings, evaluated, saved):
    path = tmp_path / "section.json"
    path.write_text(json.dumps(file))
    (training,) = chosen_of([name], 50_000, path, preset, settings).values()
    assert (training.evaluation_interval, training.checkpoint_interval) == (evaluated, saved)


@pytest.mark.parametrize("words", ["always", "-3", "0.5"])
def test_a_length_that_is_none_is_refused(words):
    with refused("algorithm.no-length", field="learning_rate_steps"):
        read_section(None, "arm-a2c", [f"learning_rate_steps={words}"])


def test_a_contest_goes_on_after_an_update_that_brought_settings(tmp_path):
    training = a_training()
    entry = contest.Contestant(tmp_path / "ppo-0", training)
    contest._prepare(entry)
    file = entry.slot_dir / "config.json"
    older = json.loads(file.read_text())
    for section, field in (("algorithm", "target_kl"), ("network", "encoders")):
        del older[section][field]
    del older["keep_milestones"]
    file.write_text(json.dumps(older))
    contest._prepare(entry)
    with refused("compare.begun-otherwise", others=re.compile("^gamma 0.95 → 0.9, total_steps 1")):
        contest._prepare(contest.Contestant(entry.folder, training.changed(gamma=0.9, total_steps=5)))
    file.write_text(json.dumps({**older, "of_the_future": 1}))
    with refused("compare.begun-otherwise", others="this version does not know all of them"):
        contest._prepare(entry)


def test_a_group_is_one_seed_with_the_means_of_its_slots(trained):
    run = trained(preset="debug")
    for slot, success in ((1, 0.1), (2, 0.3), (3, 0.7)):
        folder = run / "slots" / str(slot)
        shutil.copytree(run / "slots/0", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "seed": slot}))
        told = json.loads((folder / "attempts/0/evaluations.jsonl").read_text())
        (folder / "attempts/0/evaluations.jsonl").write_text(
            json.dumps({**told, "success": {"reach": success}, "mean_success": success}) + "\n"
        )
    (apart,) = contenders_at([run])
    assert [one.seed for one in apart.seeds] == [0, 1, 2, 3]
    rows = run / "slots/2/attempts/0/metrics.jsonl"
    rows.write_text(json.dumps({**json.loads(rows.read_text()), "group": {"rows": 7}}) + "\n")
    (group,) = contenders_at([run])
    (one,) = group.seeds
    assert one.seed == 0
    assert one.evaluations[0].mean == pytest.approx((0.5 + 0.1 + 0.3 + 0.7) / 4)


def test_seeds_that_count_more_than_once_are_told(trained):
    runs = [trained(seed=seed) for seed in (3, 4, 4, 3, 5)]
    assert not_apart(contenders_at([runs[0], runs[1], trained(algorithm="a2c", seed=4)])) == []
    (told,) = not_apart(contenders_at(runs))
    assert told.startswith("ppo: seeds 3, 4 counted more than once, and equal seeds are no further samples: give each")


def test_what_is_told_of_seeds_stands_beside_the_numbers(trained, capsys):
    compare(SimpleNamespace(get_parameter_source=lambda _: None), [trained(), trained()], as_json=True)
    out, err = capsys.readouterr()
    assert [one["seeds"] for one in json.loads(out)["contenders"]] == [[0, 0]]
    assert err.startswith("warning: ppo: seed 0 counted more than once")


@pytest.mark.parametrize(("apart", "again"), [(1, "seed 1 counted"), (2, None)])
def test_groups_whose_slots_have_equal_seeds_are_told(trained, apart, again):
    runs = [trained(preset="debug", seed=first, group={"rows": True}) for first in (0, apart)]
    for run, first in zip(runs, (0, apart), strict=True):
        rows = run / "slots/0/attempts/0/metrics.jsonl"
        rows.write_text(json.dumps({**json.loads(rows.read_text()), "group": {"rows": 7}}) + "\n")
        shutil.copytree(run / "slots/0", run / "slots/1")
        config = run / "slots/1/config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "seed": first + 1}))
    (contender,) = contenders_at(runs)
    assert [one.seed for one in contender.seeds] == [0, apart]
    told = not_apart([contender])
    assert [again in words for words in told] == ([] if again is None else [True])


def test_trainings_that_came_less_far_than_others_are_judged_where_all_were(trained):
    """Of four slots one was evaluated once: by the three others' later evaluations nobody is judged."""
    runs = [trained(), trained(seed=1), trained(algorithm="a2c"), trained(algorithm="a2c", seed=1)]
    for run in runs[1:]:
        path = run / "slots/0/attempts/0/evaluations.jsonl"
        first = json.loads(path.read_text())
        later = {**first, "step": 200, "success": {"reach": 1.0}, "mean_success": 1.0}
        path.write_text(json.dumps(first) + "\n" + json.dumps(later) + "\n")
    found = {one.name: one for one in contenders_at(runs)}
    assert [one.final.value for one in found.values()] == [0.5, 0.5]
    assert [one.step for one in found.values()] == [100, 100]
    assert [len(seed.evaluations) for seed in found["ppo"].curves] == [1, 2]


def test_seeds_that_end_above_the_largest_are_refused(tmp_path):
    last = resolve(TrainingSection(preset="tiny", seed=2**32 - 1))
    assert len(contest.entries({"one": last}, 1, tmp_path)) == 1
    with refused("compare.seeds-too-large", first=4294967295):
        contest.entries({"one": last}, 2, tmp_path)


def test_long_histories_are_compared_without_ever_being_in_memory(trained):
    runs = [trained(), trained(seed=1), trained(seed=2)]
    contenders_at(runs)  # loads what an algorithm needs
    written = [write_long_history(run / "slots/0/attempts/0/metrics.jsonl") for run in runs]
    (found,), peak = with_its_peak(lambda: contenders_at(runs))
    assert [(seed.steps, seed.seconds) for seed in found.seeds] == [(20_000, 2000.0)] * 3
    assert peak < written[0] / 4


def test_a_row_of_something_else_is_a_sentence(trained):
    run = trained()
    rows = run / "slots/0/attempts/0/metrics.jsonl"
    rows.write_text(rows.read_text() + json.dumps({"from": 100, "to": 200}) + "\n")
    with refused("history.foreign", why="no 'at'"):
        contenders_at([run])
