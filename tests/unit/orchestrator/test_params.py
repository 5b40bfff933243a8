"""The params of a program of one's own: in the words of its command, and what they mean for a slot that is finished."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from orchestrator.config import RunConfig, parse_config
from orchestrator.decisions.edits import started_again
from orchestrator.decisions.models import Attempt, Ledger, Slot, SlotStatus, Verdict
from orchestrator.run.starting import check_script, commands_of


def a_config(*command: str, **more: Any) -> RunConfig:
    return parse_config({"command": list(command), **more}, "c.json")


class TestTheWordsOfTheCommand:
    def test_each_slot_has_its_own(self) -> None:
        more: dict[str, Any] = {"slots": 2, "params": {"lr": 0.1, "env": "Ant v5"}}
        config = a_config(
            "python3", "@{env}.py", "--lr=@{lr}", "out-@{slot}", slot_overrides={"1": {"lr": 1e-3}}, **more
        )
        assert config.command_of(0) == ["python3", "Ant v5.py", "--lr=0.1", "out-0"]
        assert config.command_of(1) == ["python3", "Ant v5.py", "--lr=0.001", "out-1"]
        assert len(commands_of(config)) == 2

    @pytest.mark.parametrize(
        ("value", "word"),
        [
            (3, "3"),
            (True, "true"),
            (None, "null"),
            ("a b", "a b"),
            ("3", "3"),
            ([1, "ö"], '[1, "ö"]'),
            ("@{x}", "@{x}"),
        ],
    )
    def test_a_text_is_as_it_is_and_everything_else_is_json(self, value: Any, word: str) -> None:
        assert a_config("x", "@{x}", params={"x": value}).command_of(0) == ["x", word]

    def test_a_script_that_is_missing_in_one_slot_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "ppo.py").touch()
        config = a_config(
            "python3", "@{name}.py", slots=2, params={"name": "ppo"}, slot_overrides={"1": {"name": "pqo"}}
        )
        with refused("command.no-script", script="pqo.py", near=re.compile('"ppo.py"')):
            check_script(config, tmp_path)
        check_script(a_config("python3", "@{name}.py", params={"name": "ppo"}), tmp_path)


class TestASlotThatIsFinished:
    def slot(self, before: str = "", **more: Any) -> Slot:
        attempts = (Attempt(number=0, verdict=Verdict.FINISHED, given=before), Attempt(number=1, ahead=True))
        return Slot(index=0, status=SlotStatus.FINISHED, attempts=attempts, **more)

    @pytest.mark.parametrize("raised", [{"total_steps": 20_000}, {"preset": "guide-20m"}, {}])
    def test_goes_on_wherever_its_larger_total_comes_from(self, raised: dict[str, Any]) -> None:
        ledger = Ledger(run_id="r", epoch=0, slots=(self.slot("", total=10_000),))
        more, same = (parse_config({"training": value}, "c.json") for value in (raised, {"total_steps": 10_000}))
        assert started_again(ledger, more).slots[0].status is SlotStatus.ACTIVE
        assert started_again(ledger, same).slots[0].status is SlotStatus.FINISHED
