"""Models of tasks: compiled ahead or when they are wanted, the same ones, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

mujoco = pytest.importorskip("mujoco")
pytest.importorskip("metaworld")
from trainer.config.section import TrainingSection, resolve  # noqa: E402 - needs the extra
from trainer.envs import suite as early  # noqa: E402
from trainer.envs.suites.metaworld import resets as models  # noqa: E402

pytestmark = pytest.mark.trainer
XML = "<mujoco><worldbody><body pos='1 2 3'><geom size='.1'/></body></worldbody></mujoco>"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was begun and not taken; nothing at first, and no model of another test lives."""
    ahead: dict[str, Any] = {}
    monkeypatch.setattr(models, "_ahead", ahead)
    monkeypatch.setattr(models, "_alive", WeakValueDictionary())
    return ahead


def test_a_model_that_was_begun_is_taken_once(tmp_path: Path, begun: dict[str, Any]) -> None:
    path = tmp_path / "one.xml"
    path.write_text(XML)
    models.compile_ahead([str(path), str(path)])
    begun[str(path)].result()
    path.unlink()
    assert models.model_of(str(path)).body_pos[1].tolist() == [1, 2, 3]
    assert begun == {}
    models._alive.clear()  # the thread may not have let go of it yet
    with pytest.raises(ValueError, match=r"one\.xml"):
        models.model_of(str(path))


def test_what_cannot_be_compiled_is_told_to_who_wants_it(tmp_path: Path, begun: dict[str, Any]) -> None:
    missing = str(tmp_path / "missing.xml")
    models.compile_ahead([missing])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"missing\.xml"):
            models.model_of(missing)


def test_a_suite_that_cannot_be_opened_is_told_of_where_it_is_needed(
    begun: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ValueError("the suite lacks `describe`")

    monkeypatch.setattr(early, "find", missing)
    early.begin_early(resolve(TrainingSection(preset="guide")).env, 0)
    assert begun == {}
