from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import RunConfig, parse_config
from orchestrator.errors import FieldError
from orchestrator.experiments import NAME, expanded, merged, settings_in

GRID = {"algorithm": ["ppo", "sac"], "seed": [0, 1, 2], "rate": 0.1}
VALUES = st.one_of(
    st.integers(-5, 5), st.text("abc /=,", max_size=4), st.booleans(), st.lists(st.integers(), max_size=2)
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["lr", "seed", "a b"]), VALUES, max_size=3), min_size=1, max_size=8
)  # fmt: skip


def a_config(**fields: Any) -> RunConfig:
    return parse_config({"command": ["true"], **fields}, "c.json")


def test_a_grid_is_every_combination_and_named_by_what_differs() -> None:
    config = a_config(experiments=GRID)
    assert config.slots == 6
    assert [config.name_of(slot) for slot in (0, 1, 5)] == [
        "algorithm=ppo,seed=0", "algorithm=ppo,seed=1", "algorithm=sac,seed=2",
    ]  # fmt: skip
    assert config.settings_of(5) == {"algorithm": "sac", "seed": 2, "rate": 0.1}


def test_the_trainers_experiments_are_training_fields_and_have_one_seed() -> None:
    config = parse_config(
        {"training": {"preset": "tiny", "seed": 7}, "experiments": {"batch_size": [64, 128]}}, "c.json"
    )
    assert [config.training_of(slot).seed for slot in range(2)] == [7, 7]
    assert [config.settings_of(slot)["algorithm"]["batch_size"] for slot in range(2)] == [64, 128]


@pytest.mark.parametrize("base", [{"env": "arm", "algorithm": "ppo"}, {"preset": "arm-ppo"}])
def test_what_an_experiment_says_in_a_section_is_stronger_than_a_short_name_of_all(base: dict[str, Any]) -> None:
    rows = [{"name": "few", "algorithm": {"epochs": 5}}, {"name": "many", "algorithm": {"epochs": 20}}]
    config = parse_config({"training": {**base, "epochs": 10}, "experiments": rows}, "c.json")
    assert [config.settings_of(slot)["algorithm"]["epochs"] for slot in range(2)] == [5, 20]
    own = {"1": {"algorithm": {"epochs": 5}}}
    config = parse_config({"training": {**base, "epochs": 10}, "slots": 2, "slot_overrides": own}, "c.json")
    assert [config.settings_of(slot)["algorithm"]["epochs"] for slot in range(2)] == [10, 5]


def test_one_that_is_called_otherwise_because_others_came_keeps_its_old_name_and_slot() -> None:
    before = expanded([{"lr": 0.1, "ep": 5}, {"lr": 0.2, "ep": 5}])
    after = expanded([{"lr": 0.1, "ep": 5}, {"lr": 0.2, "ep": 5}, {"lr": 0.1, "ep": 10}])
    assert [row["name"] for row in after] == ["lr=0.1,ep=5", "lr=0.2,ep=5", "lr=0.1,ep=10"]
    assert [row["name"] for row in merged(before, after)] == ["lr=0.1", "lr=0.2", "lr=0.1,ep=10"]
    # Which of two alike is meant, nobody can say.
    alike = [{"name": "a", "lr": 1}, {"name": "b", "lr": 1}]
    assert [row["name"] for row in merged(alike, [{"name": "c", "lr": 1}])] == ["a", "b", "c"]


@given(ROWS)
def test_a_name_can_be_typed_and_is_no_number(rows: list[dict[str, Any]]) -> None:
    try:
        named = expanded(rows)
    except FieldError as error:
        assert error.id == "experiments.same-name"  # noqa: PT017
        return
    assert all(NAME.match(row["name"]) and not row["name"].isdigit() for row in named)
    assert [settings_in(row) for row in named] == rows
    assert expanded(named) == named


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_an_experiment_keeps_its_slot_for_ever(before: list[str], after: list[str]) -> None:
    both = merged([{"name": name, "v": 1} for name in before], [{"name": name, "v": 2} for name in after])
    assert [row["name"] for row in both][: len(before)] == before
    assert {row["name"] for row in both} == {*before, *after}
    assert all(row["v"] == 2 for row in both if row["name"] in after)
