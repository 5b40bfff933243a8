"""What a frame's header is made of: fields with their bounds, and the base of all messages."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from anchorleg.live.wanted import LANE, SHOWN_LANE
from anchorleg.words import printable

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A run id, a contributor: a single component of a path that is no option, no hidden file and no way upwards.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
_COMPONENT = "[A-Za-z0-9][A-Za-z0-9._-]{0,160}"
#: Below `$SHARED`; what may be read there is the server's decision (`syncd.wire.tree`).
SharedPath = Annotated[str, Field(pattern=rf"^v1(/{_COMPONENT}){{2,7}}$")]
#: That, or a file of a whole checkpoint, below the run folder (`syncd.shared.saved`).
AskedPath = Annotated[str, Field(pattern=rf"^(v1|slots)(/{_COMPONENT}){{2,7}}$")]
#: As `syncd.shared.layout.SLOT`: what can be a folder can be sent.
Slot = Annotated[int, Field(ge=0, le=999_999)]
#: What of a slot is shown (`anchorleg.live.wanted`): by its job or a contributor; and by one that is known already.
Lane = Annotated[str, Field(pattern=f"^({SHOWN_LANE.pattern})$")]
OwnLane = Annotated[str, Field(pattern=f"^({LANE.pattern})$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
_SENTENCE_CHARS, _WORD_CHARS = 2000, 100
#: The peer's own words: printable from here on, wherever they are shown or kept.
Sentence = Annotated[str, Field(max_length=_SENTENCE_CHARS), AfterValidator(partial(printable, most=_SENTENCE_CHARS))]
Word = Annotated[str, Field(max_length=_WORD_CHARS), AfterValidator(partial(printable, most=_WORD_CHARS))]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class Message(BaseModel):
    """The header of one frame. Its `KIND` is the frame's number on the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    KIND: ClassVar[int]
