"""A shared folder in memory: one server, and what each machine sees of it, which may be up to a minute old.

`create` is exclusive on the server, whatever anybody sees. What a machine wrote itself it sees at once. A `gate` stands
before and behind every call of a disk: crashes, freezes and full disks come through it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.disk import Disk


class MemoryPath(str):
    """A path that costs little: what `RunDir` and its readers use of `pathlib.Path`, whose parts take most of the time
    of a simulated tick.
    """

    __slots__ = ()

    def __truediv__(self, name: str) -> MemoryPath:
        return MemoryPath(f"{self}/{name}")

    @property
    def parent(self) -> MemoryPath:
        """The folder that it is in."""
        return MemoryPath(self.rpartition("/")[0])

    @property
    def name(self) -> str:
        """Its last part."""
        return self.rpartition("/")[2]


#: Content, or a function of the time for a file that somebody rewrites all the while (a heartbeat).
Content = bytes | Callable[[float], bytes] | None
Gate = Callable[[str, str, bool], None]

_NOTHING: dict[str, Entry] = {}


class Entry:
    """One version of one name. `data` None: it is not there (any more)."""

    __slots__ = ("data", "is_folder", "older", "visible_at", "writer")

    def __init__(self, data: Content, writer: str, visible_at: float, older: Entry | None, *, is_folder: bool) -> None:
        self.data = data
        self.writer = writer
        self.visible_at = visible_at
        self.older = older
        self.is_folder = is_folder


class Lines:
    """A file that only grows: a history of many thousand lines is not copied for each."""

    def __init__(self, before: bytes) -> None:
        self.chunks = [before]

    def __call__(self, _now: float) -> bytes:
        self.chunks = [b"".join(self.chunks)]
        return self.chunks[0]


class Server:
    """The truth. `lag_s`: how long the next write stays unseen by other machines."""

    def __init__(self, now: Callable[[], float], lag_s: Callable[[], float]) -> None:
        self.now = now
        self.lag_s = lag_s
        self.folders: dict[str, dict[str, Entry]] = {}
        self._settling: dict[str, dict[str, float]] = {}

    def entry(self, client: str | None, folder: str, name: str) -> Entry | None:
        """What `client` (None: the server itself) sees under a name; None: nothing."""
        found = self.folders.get(folder, _NOTHING).get(name)
        if found is not None and client is not None:
            now = self.now()
            while found is not None and found.visible_at > now and found.writer != client:
                found = found.older
        return found if found is not None and found.data is not None else None

    def put(self, client: str, folder: str, name: str, data: Content, *, is_folder: bool = False) -> Entry:
        """A new version of a name."""
        now, lag_s = self.now(), self.lag_s()
        names = self.folders.setdefault(folder, {})
        older = names.get(name) if lag_s > 0 else None
        if older is not None:  # versions that everybody has left behind are forgotten
            at: Entry | None = older
            while at is not None and at.visible_at > now:
                at = at.older
            if at is not None:
                at.older = None
        entry = Entry(data, client, now + lag_s, older, is_folder=is_folder)
        if data is None and lag_s <= 0:
            names.pop(name, None)
        else:
            names[name] = entry
        if lag_s > 0:
            self._settling.setdefault(folder, {})[name] = entry.visible_at
        return entry

    def names(self, client: str | None, folder: str) -> list[str]:
        """The names in a folder, as `client` sees them."""
        found = self.folders.get(folder)
        if found is None:
            return []
        settling = self._settling.get(folder)
        if not settling:
            return list(found)
        now = self.now()
        unseen = []
        for name, settled_at in list(settling.items()):
            if settled_at <= now:
                del settling[name]
                if (entry := found.get(name)) is not None and entry.data is None:
                    del found[name]
            elif self.entry(client, folder, name) is None:
                unseen.append(name)
        return [name for name in found if name not in unseen] if unseen else list(found)

    def make_folder(self, client: str, path: str) -> None:
        """A folder and its parents."""
        while path not in self.folders:
            self.folders[path] = {}
            parent, _, name = path.rpartition("/")
            if not name:
                return
            if parent not in self.folders or self.entry(None, parent, name) is None:
                self.make_folder(client, parent)
                self.put(client, parent, name, b"", is_folder=True)

    def read(self, client: str | None, path: str) -> bytes:
        """Errors: FileNotFoundError."""
        folder, _, name = path.rpartition("/")
        entry = self.entry(client, folder, name)
        if entry is None or entry.is_folder:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        data = entry.data
        return data if isinstance(data, bytes) else data(self.now())  # type: ignore[misc]

    def json_or_none(self, client: str | None, path: str) -> Any | None:
        """The JSON value of a file; None where there is none."""
        try:
            return json.loads(self.read(client, path))
        except FileNotFoundError:
            return None

    def write(self, client: str, path: str, data: Content) -> None:
        """Replace a file; its folder is made where there is none."""
        folder, _, name = path.rpartition("/")
        if folder not in self.folders:
            self.make_folder(client, folder)
        self.put(client, folder, name, data)

    def create(self, client: str, path: str, data: Content) -> bool:
        """Exclusive on the server: it asks the truth. Whoever loses has heard from the server, and sees the winner."""
        folder, _, name = path.rpartition("/")
        there = self.entry(None, folder, name)
        if there is None:
            self.write(client, path, data)
            return True
        there.visible_at = min(there.visible_at, self.now())
        return False

    def remove(self, client: str, path: str) -> None:
        """Remove a file, if it is there."""
        folder, _, name = path.rpartition("/")
        if self.entry(None, folder, name) is not None:
            self.put(client, folder, name, None)

    def remove_tree(self, client: str, path: str) -> None:
        """Remove a folder with all that is in it."""
        for name, entry in list(self.folders.get(path, _NOTHING).items()):
            if entry.is_folder:
                self.remove_tree(client, f"{path}/{name}")
        self.folders.pop(path, None)
        self._settling.pop(path, None)
        folder, _, name = path.rpartition("/")
        if name in self.folders.get(folder, _NOTHING):
            del self.folders[folder][name]


class MemoryDisk(Disk):
    """One machine's view of the server: the `Disk` that the controller gets."""

    def __init__(self, server: Server, client: str) -> None:
        self.server = server
        self.client = client
        self.gate: Gate | None = None

    def _pass(self, kind: str, path: Path, *, before: bool) -> None:
        if self.gate is not None:
            self.gate(kind, path, before)  # type: ignore[arg-type]

    def names(self, folder: Path) -> list[str]:
        self._pass("names", folder, before=True)
        return self.server.names(self.client, str(folder))

    def exists(self, path: Path) -> bool:
        self._pass("exists", path, before=True)
        folder, _, name = str(path).rpartition("/")
        return self.server.entry(self.client, folder, name) is not None

    def version(self, path: Path) -> object:
        self._pass("version", path, before=True)
        folder, _, name = str(path).rpartition("/")
        entry = self.server.entry(self.client, folder, name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return entry

    def read(self, path: Path) -> bytes:
        self._pass("read", path, before=True)
        return self.server.read(self.client, str(path))

    def tail(self, path: Path, length: int) -> bytes:
        return self.read(path)[-length:]

    def write(self, path: Path, data: bytes) -> None:
        self._pass("write", path, before=True)
        if str(path.parent) not in self.server.folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        self.server.write(self.client, str(path), data)
        self._pass("write", path, before=False)

    def create(self, path: Path, data: bytes) -> bool:
        self._pass("create", path, before=True)
        if str(path.parent) not in self.server.folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        made = self.server.create(self.client, str(path), data)
        self._pass("create", path, before=False)
        return made

    def append(self, path: Path, value: Any) -> None:
        self._pass("append", path, before=True)
        line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        folder, _, name = str(path).rpartition("/")
        if folder not in self.server.folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        entry = self.server.entry(None, folder, name)
        if entry is not None and isinstance(entry.data, Lines):
            entry.data.chunks.append(line)
        else:
            before = self.server.read(None, str(path)) if entry is not None else b""
            torn = b"\n" if before and not before.endswith(b"\n") else b""
            self.server.write(self.client, str(path), Lines(before + torn + line))
        self._pass("append", path, before=False)

    def make_folder(self, path: Path, *, exist_ok: bool = False) -> None:
        self._pass("make_folder", path, before=True)
        if str(path) in self.server.folders:
            if not exist_ok:
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            return
        self.server.make_folder(self.client, str(path))
        self._pass("make_folder", path, before=False)

    def sync_folder(self, path: Path) -> None:
        self._pass("sync_folder", path, before=True)

    def remove(self, path: Path) -> None:
        self._pass("remove", path, before=True)
        self.server.remove(self.client, str(path))
        self._pass("remove", path, before=False)

    def remove_tree(self, path: Path) -> None:
        self._pass("remove_tree", path, before=True)
        self.server.remove_tree(self.client, str(path))
        self._pass("remove_tree", path, before=False)

    def link_target(self, path: Path) -> str | None:
        """The links are made by the job script, which is not simulated."""
        self._pass("link_target", path, before=True)

    def touch(self, path: Path) -> None:
        self._pass("touch", path, before=True)
        folder, _, name = str(path).rpartition("/")
        if folder not in self.server.folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if self.server.entry(None, folder, name) is None:
            self.server.write(self.client, str(path), b"")
        self._pass("touch", path, before=False)
