"""What slots of one run give each other: a training's section `group`.

It decides no number of a slot alone, so it is no part of a training's identity: it may change from one job to the next.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.config.fields import PositiveInt, TrainingSettings

#: The most of a batch that all others may make up together, slots of the group and contributors: learners with mostly
#: others' rows do worse than alone (Ostrovski et al. 2021, arXiv 2110.14020).
MOST_FOREIGN = 0.5
#: Episodes that a slot keeps for the others: of 50 kB each, 10 MB, a quarter of an hour at 700 steps a second.
EPISODES_KEPT = 200


class GroupSettings(TrainingSettings):
    """What slots of one run that train the same, but for the seed, give each other: docs/groups.md."""

    rows: bool = Field(
        False,
        description="Give the other slots one in `every` finished episodes, and learn from theirs; off-policy only.",
    )
    share: Annotated[float, Field(gt=0, le=MOST_FOREIGN)] = Field(
        0.3,
        description="The most of a batch that the other slots' rows make up. With contributors' rows it is never more "
        "than one half.",
    )
    every: PositiveInt = Field(
        7, description="One in so many finished episodes is given: 7 is enough for a share of 0.3 among four."
    )
    adopt: bool = Field(
        False,
        description="Take over what another slot has learned, where that solved a tenth more at two evaluations in a "
        "row; slot 0 never does.",
    )

    mix: bool = Field(
        False,
        description="Move the nets a little towards the mean of the other slots' now and then; needs init_seed, and is "
        "an experiment.",
    )
    mix_every: PositiveInt = Field(
        1_000,
        description="Updates between two averages. The others' nets are those of their newest checkpoints, so more "
        "often than checkpoint_interval brings nothing.",
    )

    @property
    def ways(self) -> tuple[str, ...]:
        """The fields by which slots learn from each other. Where there is one, what several slots come to are not
        several results.
        """
        return tuple(name for name in ("rows", "adopt", "mix") if getattr(self, name))
