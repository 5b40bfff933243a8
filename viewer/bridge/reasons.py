"""What the end of the other machine's viewer means, as one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from syncd.errors import ConfigError, LoginRefusedError, RemoteError, SyncError, UnreachableError
from syncd.transports.openssh import EXIT_NOT_FOUND, EXIT_REFUSED
from viewer.bridge.frames import BRIDGE, Greeting
from viewer.errors import NotReachable, UsageError, ViewerError

#: Of one line of theirs.
_MOST_WORDS = 600
_PREFIX = "viewer: "
#: An older viewer says so of `--stdio`.
_UNKNOWN_OPTION = "No such option"


class FarEndError(RemoteError):
    """The viewer over there ended with a sentence and a code of its own: they are handed on."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.exit_code = code


def of_program(place: str, code: int, lines: Sequence[str]) -> SyncError:
    """What an end of the command over there means. `lines`: what it said on stderr."""
    said = next((line for line in reversed(lines) if line.startswith(_PREFIX)), "").removeprefix(_PREFIX)[:_MOST_WORDS]
    last = lines[-1][:_MOST_WORDS] if lines else f"exit code {code}"
    if code < 0:
        return UnreachableError(f"the ssh that led to {place} was ended (signal {-code})")
    if any(_UNKNOWN_OPTION in line for line in lines):
        return RemoteError(f"the viewer at {place} is older than this one: update Anchorleg there")
    if said and 0 < code < EXIT_REFUSED:
        return FarEndError(f"{place} says: {said.removesuffix('.')}", code)
    if code == EXIT_NOT_FOUND:
        return RemoteError(
            f"{place} has no `viewer` where it was looked for ({last}): install Anchorleg there, or say where it is "
            "with --remote-command /…/bin/viewer"
        )
    if code == EXIT_REFUSED:
        return RemoteError(f"{place} does not allow this ({last}): a key for syncd alone shows no page")
    if code == 0 or code > EXIT_NOT_FOUND:
        return UnreachableError(f"the viewer at {place} ended" + (f" ({last})" if lines else ""))
    return RemoteError(f"the viewer at {place} does not start ({last})")


def of_versions(place: str, greeting: Greeting, own: str) -> RemoteError | None:
    """Why the two ends do not understand each other; None: they do."""
    if greeting.bridge == BRIDGE:
        return None
    older, which = ("this one", "here") if greeting.bridge > BRIDGE else ("that one", "there")
    return RemoteError(
        f"the viewer at {place} is Anchorleg {greeting.version}, this one is {own}, and {older} is too old: "
        f"update Anchorleg {which}"
    )


def for_the_user(error: SyncError, *, was_live: bool) -> ViewerError:
    """With the code that `viewer` ends with. `was_live`: it had gone well before."""
    sentence = str(error)
    if was_live and isinstance(error, LoginRefusedError):
        sentence = f"the connection was lost, and nobody was asked again: {sentence}; or type the command again"
    if isinstance(error, FarEndError):
        told = ViewerError(f"{sentence}.")
        told.exit_code = error.exit_code
        return told
    return (UsageError if isinstance(error, ConfigError) else NotReachable)(f"{sentence}.")
