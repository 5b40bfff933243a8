"""The login node's end: the page is served to whoever comes over the bridge, and ends with it.

`viewer RUN --stdio`, which `viewer HOST:RUN` of a laptop starts there. It opens no port and no socket. However the
connection ends, this ends: the standard input closes with ssh, and a laptop that is cut off is silent.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable

from viewer.bridge.frames import BRIDGE, Greeting
from viewer.bridge.line import BridgeLine
from viewer.errors import ViewerError
from viewer.server.door import Door, InnerDoor
from viewer.server.serve import PageServer

#: A laptop that sleeps for a moment need not log in again; nothing is left much longer than that where a line was cut.
FAR_SILENCE_S = 60.0
#: Of one round: so soon is it seen that the page's server has ended.
TURN_S = 1.0
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def own_pipes() -> tuple[int, int]:
    """(in, out): the standard input and output, which from now on nobody else of this process reads or writes: what is
    printed goes where errors go.
    """
    sys.stdout.flush()
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return reads, writes


def serve_over(
    reads: int,
    writes: int,
    greeting: Greeting,
    make: Callable[[Door, str], PageServer],
    *,
    silence_s: float = FAR_SILENCE_S,
) -> None:
    """Serve until the other end is gone. `make`: the page's server at a door, with the token that the other end gave.

    Errors: ViewerError where the server cannot go on, or the other end speaks another language.
    """
    door = InnerDoor()
    line = BridgeLine(reads, writes, silence_s=silence_s, opened=door.let_in)
    server: PageServer | None = None
    ended: list[BaseException] = []
    try:
        os.write(writes, greeting.line())
        while not ended:
            line.turn(TURN_S)
            if server is None and line.token:
                server = make(door, _checked(line.token))
                threading.Thread(target=_serve, args=(server, ended), daemon=True).start()
    except (EOFError, TimeoutError, BrokenPipeError):
        return
    except ValueError as error:
        raise ViewerError(f"the other end is no viewer of this version (bridge {BRIDGE}): {error}.") from None
    finally:
        line.close()
        server.shutdown() if server is not None else door.close()
    raise ended[0]


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token of another form")
    return token


def _serve(server: PageServer, ended: list[BaseException]) -> None:
    try:
        server.serve_forever()
    except BaseException as error:  # noqa: BLE001 - said by who waits for it
        ended.append(error)
    else:
        ended.append(ViewerError("the page's server has ended: start it again."))
