"""Which trainings are one contender, and what is said of several: numbers against their definitions."""

from __future__ import annotations

import json
import shutil
from itertools import permutations

import numpy as np
import pytest
from long_history import with_its_peak, write_long_history
from refused import refused

pytest.importorskip("torch")

from trainer.commands.curves import compare
from trainer.config.section import TrainingSection, resolve
from trainer.nets.weights import WEIGHTS
from trainer.showing.comparison import (
    Contender,
    Seeded,
    as_far_as_all,
    contenders_at,
    probability_of_improvement,
    rising,
)
from trainer.showing.learning import Evaluated
from trainer.showing.tables import comparison_as_json, judged_at, not_apart
from trainer.training.inputs import DEMOS

pytestmark = pytest.mark.trainer
RISING = [0.1, 0.3, 0.5, 0.7, 0.9]


def seeded(scores, seed=0, *, every=100, late=0):
    """`late`: as many steps each evaluation comes late, which is one less than there are environments."""
    found = tuple(Evaluated((i + 1) * every + late, {"a": score}, 10, earned=score) for i, score in enumerate(scores))
    return Seeded(seed, found, len(scores) * every + late, 10.0, late + 1)


def contender(name, *curves, **more):
    return Contender(name, tuple(seeded(scores, seed, **more) for seed, scores in enumerate(curves)))


def evaluated_at(name, num_envs, *steps):
    found = tuple(Evaluated(step, {"a": 0.5}, 10) for step in steps)
    return Contender(name, (Seeded(0, found, steps[-1], 10.0, num_envs),))


def test_what_a_contender_came_to():
    one = contender("ppo", [0.0, 0.5, 1.0], [0.2, 0.9, 0.6], [0.0, 0.0, 0.9])
    assert one.final.value == pytest.approx(np.mean([1.0, 0.6, 0.9]))  # of three none is cut
    assert (one.worst, one.largest_drop) == (0.6, pytest.approx(0.3))
    assert one.area == pytest.approx(np.mean([0.5, (0.55 + 0.75) / 2, 0.225]))
    assert (one.steps_to(0.5), one.steps_to(0.8), one.steps_to(0.95)) == (200, 300, None)
    assert one.steps_per_second == 30


def test_who_is_better_is_first_and_how_likely_is_said():
    strong, weak = contender("b", [0.9], [0.8], [0.7]), contender("a", [0.1], [0.2], [0.75])
    assert [one.name for one in rising([weak, strong])] == ["b", "a"]
    found, back = probability_of_improvement(strong, weak), probability_of_improvement(weak, strong)
    assert (found.value, back.value) == (pytest.approx(8 / 9), pytest.approx(1 / 9))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert probability_of_improvement(strong, strong).value == 0.5
    sure = probability_of_improvement(contender("a", [1], [1], [1]), contender("b", [0], [0], [0]))
    assert (sure.value, sure.low, sure.high) == (1.0, 0.0, 1.0)  # no resample tells more


def test_who_is_further_is_judged_where_all_were_evaluated():
    """Two with the same curve, of which one still trains and one has a seed that failed."""
    ppo, sac = as_far_as_all(
        [contender("ppo", RISING, RISING, RISING), contender("sac", RISING[:2], RISING[:3], RISING)]
    )
    for one in (ppo, sac):
        assert (one.step, one.worst, one.steps_to(0.5)) == (200, 0.3, None)
        assert (one.final.value, one.mean_return, one.area) == pytest.approx((0.3, 0.3, 0.2))
    assert judged_at([ppo, sac]).startswith("judged at step 200, the last that all have evaluated")
    told = {one["algorithm"]: one for one in comparison_as_json([ppo, sac])["contenders"]}
    assert (told["ppo"]["judged_at"], told["sac"]["steps"]) == (200, [200, 300, 500])
    assert [len(rows) for rows in told["sac"]["evaluations"]] == [2, 3, 5]
    with refused("compare.no-common-step", evaluated="a at 100 to 500, b at 50"):
        as_far_as_all([contender("a", RISING), contender("b", [0.5], every=50)])


def test_an_evaluation_counts_for_the_step_at_which_it_was_due_in_whatever_order_they_are_named():
    """It is made at the first step of all environments that reaches the step at which it was due."""
    few = evaluated_at("few", 8, 1000, 2000, 3000, 4000)
    many = evaluated_at("many", 1280, 1280, 2560, 3840, 5120)
    further = evaluated_at("further", 8, 1000, 2000, 3000, 4000, 5000)
    for order in permutations([few, many, further]):
        judged = {one.name: one.step for one in as_far_as_all(order)}
        assert judged == {"few": 4000, "many": 5120, "further": 4000}
    often, seldom = as_far_as_all([contender("a", RISING), contender("b", [0.3, 0.7, 0.9], every=200, late=7)])
    assert (often.step, seldom.step) == (400, 407)
    with refused("compare.no-common-step"):  # the second was due after 3,900 at the earliest
        as_far_as_all([evaluated_at("early", 2000, 3900), evaluated_at("late", 8, 4000)])


def test_where_no_success_is_told_returns_are_compared():
    def by_return(name, *ends):
        found = [(Evaluated(100, {"a": 0.0}, 10, 5.0), Evaluated(200, {"a": 0.0}, 10, end)) for end in ends]
        return Contender(name, tuple(Seeded(k, each, 200, 9) for k, each in enumerate(found)))

    good, bad = by_return("a", 400, 500, 450), by_return("b", 100, 420, 90)
    assert (good.tells_success, good.final.value, good.steps_to(0.5)) == (False, pytest.approx(450), None)
    assert (good.worst, bad.largest_drop) == (400, 0)
    assert probability_of_improvement(good, bad).value == pytest.approx(8 / 9)
    few = by_return("c", 1, 3)
    assert (few.final.value, few.final.low, few.final.high) == (2, 1, 3)


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


def gives(run, slot=0):
    """The slot's rows say that it learned from others of its group."""
    rows = run / f"slots/{slot}/attempts/0/metrics.jsonl"
    rows.write_text(json.dumps({**json.loads(rows.read_text()), "group": {"rows": 7}}) + "\n")


def test_seeds_and_what_changes_nothing_that_is_learned_are_one_contender_and_a_slot_counts_once(trained):
    idle = {"checkpoint_interval": 77, "num_workers": 2, "threads": 2, "keep_checkpoints": 9, "evaluation_interval": 50}
    run = trained()
    assert named(run, run / "slots/0", trained(seed=1), trained(seed=2, **idle), run) == {"ppo": [0, 1, 2]}


@pytest.mark.parametrize(
    ("first", "fields", "name"),
    [
        ({}, {"gamma": 0.9}, "ppo gamma=0.9"),
        ({}, {"actor_hidden": [8]}, "ppo actor_hidden=[8]"),
        ({}, {"total_steps": 5000}, "ppo total_steps=5000"),
        ({}, {"preset": "guide", "env": "arm", "algorithm": "ppo"}, "ppo (guide)"),
        ({"preset": "debug"}, {"group": {"rows": True, "mix_every": 7}}, 'mtsac group={"rows":true}'),
        ({"preset": "debug"}, {"init_seed": 0}, "mtsac init_seed=0"),
    ],
)
def test_contenders_of_one_algorithm_are_named_by_what_differs(trained, first, fields, name):
    found = named(trained(**first), trained(**{**first, "seed": 1, **fields}))
    assert len(found) == 2
    assert found[name] == [1]


def test_contenders_of_several_algorithms_name_the_preset_where_it_varies(trained):
    assert named(trained(), trained(algorithm="a2c", seed=1)) == {"ppo": [0], "a2c": [1]}
    assert named(trained(), trained(preset="arm-a2c", seed=1)) == {"ppo (arm-ppo)": [0], "a2c (arm-a2c)": [1]}


def test_demonstrations_and_weights_go_by_their_sum_and_not_by_where_they_lie(trained):
    def sac_with(**demos):
        return {"preset": "arm-sac", "algorithm": {"name": "sac", **demos}}

    one = "ab" * 32
    first = trained(**sac_with(demos="/a", demos_sha256=one))
    kept = [trained(seed=seed, **sac_with(demos=f"/{seed}")) for seed in (2, 3)]
    assert len(named(*kept)) == 2  # nobody says that they are the same
    for run in kept:
        (run / "slots/0" / DEMOS / one).mkdir(parents=True)
    assert named(first, *kept) == {"sac": [0, 2, 3]}
    assert len(named(first, trained(seed=4, **sac_with(demos="/a", demos_sha256="cd" * 32)))) == 2

    sees = {"env": {"name": "spots:Spots", "observation": "both", "image_size": 32}, "algorithm": "sac"}
    runs = [
        trained(preset="guide", seed=seed, **sees, network={"encoder": {"arch": "spots:Eye", "weights": place}})
        for seed, place in enumerate(("/a.safetensors", "/b.safetensors"))
    ]
    for run in runs:
        (run / "slots/0" / WEIGHTS).mkdir()
        (run / "slots/0" / WEIGHTS / f"{one}.safetensors").touch()
    assert named(*runs) == {"sac": [0, 1]}


@pytest.mark.parametrize("fields", [{"horizon": 30}, {"preset": "cartpole-ppo"}])
def test_different_environments_are_not_compared(trained, fields):
    runs = [trained(), trained(seed=1), trained(**fields)]
    with refused("compare.other-env", first=f"slot 0 of {runs[0]}", second=f"slot 0 of {runs[2]}"):
        contenders_at(runs)


def test_a_group_is_one_seed_with_the_means_of_its_slots_and_not_of_those_that_give_nothing(trained):
    run = trained(preset="debug", group={"rows": True})
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
    gives(run, 2)
    (group,) = contenders_at([run])
    assert [(one.seed, one.group) for one in group.seeds] == [(0, (0, 1, 2, 3))]
    assert group.seeds[0].evaluations[0].mean == pytest.approx((0.5 + 0.1 + 0.3 + 0.7) / 4)
    alone = trained(preset="debug", seed=9)
    shutil.copytree(alone / "slots/0", run / "slots/4")
    assert named(run) == {'mtsac group={"rows":true}': [0], "mtsac": [9]}


def test_seeds_that_count_more_than_once_are_told_beside_the_numbers(trained, capsys):
    runs = [trained(seed=seed) for seed in (3, 4, 4, 3, 5)]
    assert not_apart(contenders_at([runs[0], runs[1], trained(algorithm="a2c", seed=4)])) == []
    compare(list(map(str, runs)), as_json=True)
    out, err = capsys.readouterr()
    assert [one["seeds"] for one in json.loads(out)["contenders"]] == [[3, 3, 4, 4, 5]]
    assert err.startswith("warning: ppo: seeds 3, 4 counted more than once")


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
