"""Where the page is served, and how one gets there. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

#: By these a desktop is known.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def is_shared_machine(environ: Mapping[str, str], platform: str, find: Callable[[str], str | None]) -> bool:
    """Whether others work here, too, as far as one can tell: nobody sits before it (no display), and somebody logged in
    from elsewhere (`SSH_CONNECTION`) or jobs are submitted from here (`sbatch`). Every account of such a machine
    reaches every port of it. `find`: as `shutil.which`.
    """
    if platform == "darwin" and "SSH_CONNECTION" not in environ:
        return False
    if any(environ.get(name) for name in _DISPLAYS):
        return False
    return bool(environ.get("SSH_CONNECTION")) or find("sbatch") is not None


def address(port: int, token: str) -> str:
    """What a browser opens. A browser keeps what comes after `#` to itself: no server's log has it."""
    return f"http://127.0.0.1:{port}/#{token}"


def how_to_get_there(socket: str, user: str, host: str, port: int, token: str) -> list[str]:
    """What to type on the laptop. `host`: this very one; a pool's common name would lead to another machine."""
    tunnel = f"ssh -o ExitOnForwardFailure=yes -N -L {port}:{shlex.quote(socket)} {user}@{host}"
    return [
        "The page is served on a socket that only your account can open. On your laptop, type and leave running:",
        f"  {tunnel}",
        "and open there:",
        f"  {address(port, token)}",
        "If the laptop knows this machine by another name, write that one in place of what comes after the @.",
    ]
