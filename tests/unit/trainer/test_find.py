"""Classes of somebody else, by name."""

from __future__ import annotations

import pytest

from trainer.config.find import ALGORITHMS, SUITES, find, settings_of
from trainer.config.settings import EnvSettings

pytestmark = pytest.mark.trainer


class Halfway:
    """A suite that somebody has begun to write."""

    class Settings(EnvSettings):
        """Of it."""

        name: str = f"{__name__}:Halfway"

    def make(self, task):
        """All that it has."""


def test_a_class_that_lacks_methods_is_told_which_ones():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"\(Halfway\) lacks `starts_near`, `describe`, `stepped_natively`") as told:
        find(SUITES, f"{__name__}:Halfway")
    assert "`make`" not in str(told.value)
    assert "`spaces`" not in str(told.value), "an instance may set what is a property elsewhere"
    assert str(told.value).endswith("see the protocol Suite in trainer/envs/suite.py")
    with pytest.raises(ValueError, match=r"lacks `choose_launch_mode`.* in trainer/algorithms/base.py"):
        find(ALGORITHMS, f"{__name__}:Halfway")


def test_its_settings_are_read_where_nothing_can_be_trained():
    assert settings_of(SUITES, f"{__name__}:Halfway") is Halfway.Settings
