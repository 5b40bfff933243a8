"""What one page wants to see of the agents, and what reaches it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from anchorleg.live.wanted import ANY, MOST_LANES, SHOWN_LANE, contributor_of

#: "training": as the jobs play; "here": as this machine plays the published policy; "both": training where it comes.
Way = Literal["training", "here", "both"]
TRAINING: Literal["training"] = "training"
HERE: Literal["here"] = "here"
#: In a page that is a file: played when it was written.
RECORDED: Literal["recorded"] = "recorded"
#: Where neither the user nor the run says how many agents are shown.
TOP_K = 2
#: Of a tile's canvas, in pixels of the page.
WIDTH, HEIGHT = 480, 360

_Slot = Annotated[int, Field(ge=0, lt=2**31)]
_Lane = Annotated[str, Field(pattern=f"^({SHOWN_LANE.pattern})$")]


class LiveChoice(BaseModel):
    """`on`: agents are shown at all. `top`: how many, None: as the run says. `pins`: slots that stay; `lanes`: (slot,
    lane) where the user picked a task, or a contributor's agents. Frozen, and so a key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: bool = True
    top: Annotated[int, Field(ge=1, le=MOST_LANES)] | None = None
    way: Way = "both"
    pins: Annotated[tuple[_Slot, ...], Field(max_length=MOST_LANES)] = ()
    lanes: Annotated[tuple[tuple[_Slot, _Lane], ...], Field(max_length=16)] = ()

    def lane_of(self, slot: int) -> str:
        """The lane that is shown of a slot."""
        return dict(self.lanes).get(slot, ANY)

    def way_of(self, slot: int) -> Way:
        """How it is shown: what a contributor plays is never played here."""
        return TRAINING if contributor_of(self.lane_of(slot)) else self.way


class CheckedBatch(NamedTuple):
    """One batch that was checked: `anchorleg.live.batches`."""

    kind: int
    header: dict[str, Any]
    body: bytes


class AgentNews(NamedTuple):
    """News of one agent: what came since the last look, oldest first."""

    slot: int
    lane: str
    way: Literal["training", "here", "recorded"]
    batches: tuple[CheckedBatch, ...]


class SceneFile(NamedTuple):
    """A scene, as it lies on the disk."""

    sha256: str
    data: bytes


class StageNews(NamedTuple):
    """Which tiles there are, and what is said of each: `Hub` has the fields."""

    value: dict[str, Any]
