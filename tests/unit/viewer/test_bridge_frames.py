"""What goes over a bridge: whole frames come out as they went in, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncd.errors import LoginRefusedError, RemoteError, UnreachableError
from viewer.bridge.frames import (
    BRIDGE,
    MOST_BEFORE,
    MOST_DATA,
    BridgeFrame,
    BridgeKind,
    Greeting,
    Unpacker,
    a_credit,
    greeting_in,
)
from viewer.bridge.reasons import FarEndError, for_the_user, of_program, of_versions

FRAMES = st.builds(BridgeFrame, st.sampled_from(BridgeKind), st.integers(0, 2**32 - 1), st.binary(max_size=50))


@given(st.lists(FRAMES, max_size=8), st.integers(1, 9))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(frames: list[BridgeFrame], piece: int) -> None:
    data, unpacker = b"".join(frame.packed() for frame in frames), Unpacker()
    found = [frame for at in range(0, len(data), piece) for frame in unpacker.frames(data[at : at + piece])]
    assert found == frames


def test_a_frame_that_is_too_large_or_of_no_kind_is_none() -> None:
    for frame in (
        BridgeFrame(BridgeKind.DATA, 1, bytes(MOST_DATA + 1)).packed(),
        b"\x09" + bytes(8),
        b"GET / HTTP/1.1",
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - of several makers
            Unpacker().frames(frame)
    with pytest.raises(ValueError, match="credit"):
        BridgeFrame(BridgeKind.CREDIT, 1, b"abc").credit()
    assert a_credit(7, 70_000).credit() == 70_000


def test_the_greeting_is_found_behind_what_a_login_prints() -> None:
    greeting = Greeting(bridge=BRIDGE, version="1.2", place="mt10", port=9999)
    said = b"Welcome to hpc!\n" + greeting.line()
    assert greeting_in(said + b"more") == (greeting, b"more")
    assert all(greeting_in(said[:count]) is None for count in range(len(said)))


@pytest.mark.parametrize(
    "said",
    [
        bytes(MOST_BEFORE + 1), b"anchorleg-viewer-bridge:" + bytes(5000), b"anchorleg-viewer-bridge:no\n",
        b'anchorleg-viewer-bridge:{"bridge": 1, "version": "' + b"x" * 200 + b'"}\n',
        b'anchorleg-viewer-bridge:{"bridge": 1, "version": "1", "port": 70000}\n',
    ],
    ids=["noise", "endless", "no JSON", "a long version", "a port that is none"],
)  # fmt: skip
def test_what_is_no_greeting_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several sentences
        greeting_in(said)


@pytest.mark.parametrize(
    ("code", "lines", "kind", "sentence"),
    [
        (8, ["viewer: no run called mt1O was started from this account."], FarEndError, "hpc says: no run called mt1O"),
        (2, ["Usage: viewer", "Error: No such option: --stdio"], RemoteError, "older than this one: update Anchorleg"),
        (127, ["sh: viewer: not found"], RemoteError, "no `viewer` where it was looked for .*--remote-command"),
        (126, ["syncd gate: refused"], RemoteError, "does not allow this"),
        (1, ["Traceback", "ImportError: x"], RemoteError, r"does not start \(ImportError: x\)"),
        (0, [], UnreachableError, "the viewer at hpc ended"),
        (143, [], UnreachableError, "the viewer at hpc ended"),
        (-9, [], UnreachableError, "the ssh that led to hpc was ended"),
    ],
)
def test_each_end_of_the_other_viewer_is_a_sentence(
    code: int, lines: list[str], kind: type[Exception], sentence: str
) -> None:
    error = of_program("hpc", code, lines)
    assert type(error) is kind
    with pytest.raises(type(error), match=sentence):
        raise error
    assert for_the_user(error, was_live=False).exit_code == (8 if kind is FarEndError else 6)


def test_of_two_versions_the_older_one_is_named() -> None:
    newer, older = (Greeting(bridge=BRIDGE + by, version="9.9") for by in (1, -1))
    assert "this one is too old: update Anchorleg here" in str(of_versions("hpc", newer, "1.0"))
    assert "that one is too old: update Anchorleg there" in str(of_versions("hpc", older, "1.0"))
    assert of_versions("hpc", Greeting(bridge=BRIDGE, version="9.9"), "1.0") is None


def test_who_typed_a_password_is_told_that_nobody_was_asked_again() -> None:
    error = LoginRefusedError("hpc refused the key")
    assert "nobody was asked again" in str(for_the_user(error, was_live=True))
    assert "nobody" not in str(for_the_user(error, was_live=False))
