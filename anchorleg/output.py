"""What a command prints: where its reader has gone, the disk that it goes to is full, or others print beside it.

click and rich end a command with 1 and no word where the reader has gone, and Python writes once more what is left as
it leaves. So while a command runs `sys.stdout` is one of ours (`ending_well`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn, Self, TextIO, TypeGuard

from anchorleg.errors import NamedError
from anchorleg.words import lines_shown, on_one_line, shown, wrapped

#: A command's exit code then, as a shell has it: `orchestrator status | head -1`.
READER_GONE = 128 + signal.SIGPIPE


class ReaderGoneError(OSError):
    """The reader of our output has gone. No BrokenPipeError: that is what click and rich look for."""


class _Shown(io.TextIOWrapper):
    """Text for people: control characters are written out, whatever they came from. rich's own orders pass."""

    def write(self, text: str, /) -> int:
        """As `io.TextIOWrapper`. While rich redraws, its own stream stands before this one, and all text is rich's."""
        streams = (stream for stream in (sys.stdout, sys.stderr) if not isinstance(stream, _Shown))
        is_richs = any(getattr(stream, "rich_proxied_file", None) is self for stream in streams)
        super().write(text if is_richs else shown(text))
        return len(text)

    @property
    def rich_proxied_file(self) -> _Ordering:
        """Where rich writes, which asks any file for this: the text that it is given is shown as well."""
        sys.modules["rich.text"].strip_control_codes = shown  # type: ignore[attr-defined]
        return _Ordering(self)


class _Ordering:
    """A `_Shown` that orders may be written to."""

    def __init__(self, shown: _Shown) -> None:
        self.write = functools.partial(io.TextIOWrapper.write, shown)
        self._shown = shown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


class _Out(io.FileIO):
    """Where output goes. What is written after its reader has gone is dropped."""

    #: Whether somebody was told, and decided what follows from it.
    has_failed = False
    #: Whether this process has printed anything, here or beside what was set aside.
    has_written = False

    def write(self, data: Any, /) -> int:
        """As `io.FileIO`. Errors: ReaderGoneError, once; OSError with a name."""
        _Out.has_written = True
        try:
            return super().write(data)
        except BrokenPipeError as error:
            _drop(self.fileno())
            raise ReaderGoneError("the reader of the output has closed") from error
        except OSError as error:
            self.has_failed = True
            raise OSError(error.errno, error.strerror, "the output") from error


def ending_well(act: Callable[[], object], *, runs_foreign: bool = False) -> None:
    """Run the command `act`. Errors: its own; SystemExit(`READER_GONE`); OSError where its output cannot be written.

    In a locale without UTF-8 the command begins anew with Python's UTF-8 mode: a path that one process writes down must
    be the same file's to the next one, in whatever locale that is. `runs_foreign`: programs of others run in this
    process, and say on standard error what they like.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this very command
    raw = _watch()
    if not runs_foreign and _is_pythons(sys.stderr):
        sys.stderr = _like(sys.stderr, io.FileIO(sys.stderr.fileno(), "wb", closefd=False))
    is_done = False
    try:
        try:
            act()
            is_done = True
        except SystemExit as end:
            is_done = not end.code
            raise
        finally:
            _flush(quietly=not is_done or (raw is not None and raw.has_failed))
    except ReaderGoneError:
        sys.exit(READER_GONE)


@contextlib.contextmanager
def set_aside() -> Iterator[TextIO]:
    """The output, for an answer that a program reads. What anybody else prints meanwhile, a library or a program that
    is started, goes to standard error; what is not printed by Python does so from then on. A test's output stays.
    """
    answer: TextIO = sys.stdout
    if _is_pythons(answer):
        answer.flush()
        place = answer.fileno()
        answer = _like(answer, _Out(os.dup(place), "wb"))
        if sys.stderr is None:
            _drop(place)
        else:
            os.dup2(sys.stderr.fileno(), place)
    sys.stdout = sys.stderr
    try:
        yield answer
    finally:
        sys.stdout = answer


def end_with_error(program: str, error: object, code: int) -> NoReturn:
    """End `program`: print the sentence `error` to standard error, and exit with `code`.

    A `NamedError` has its identifier in brackets behind it. Where `--json` was typed and no answer has been printed,
    it is printed to standard output too, as one JSON object.
    """
    if isinstance(error, NamedError) and "--json" in sys.argv and not _Out.has_written:
        with contextlib.suppress(OSError):
            print(json.dumps(error.as_json()))
        _flush(quietly=True)
    words = error.with_id() if isinstance(error, NamedError) else str(error)
    say(*f"{program}: {words}".splitlines(), file=sys.stderr)
    sys.exit(code)


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print each of `lines` on one line, whatever is in it; for a terminal, broken between words."""
    out = file or sys.stdout
    Waiting.clear()
    if out.isatty():
        width = shutil.get_terminal_size().columns
        lines = tuple(piece for line in lines for piece in wrapped(shown(on_one_line(line)), width))
    if lines:
        print(lines_shown(lines), file=out, flush=True)


def words_of(error: OSError) -> str:
    """What is wrong with which file."""
    return f"{error.filename or 'a file'}: {error.strerror or error}"


def _watch() -> _Out | None:
    """Put ours in the place of Python's own `sys.stdout`; a test's stays, and then it is None."""
    old = sys.stdout
    raw = None
    if _is_pythons(old):
        old.flush()
        raw = _Out(old.fileno(), "wb", closefd=False)
        sys.stdout = _like(old, raw)
    return raw


def _is_pythons(stream: object) -> TypeGuard[io.TextIOWrapper]:
    """Whether it is Python's own stream, or ours in its place, and not a test's."""
    return type(stream) in {io.TextIOWrapper, _Shown}


def _like(old: io.TextIOWrapper, raw: io.FileIO) -> io.TextIOWrapper:
    """What writes to `raw` as `old` did."""
    return _Shown(
        raw if old.write_through else io.BufferedWriter(raw),  # as Python has it with -u
        encoding=old.encoding, errors=_lenient(old.errors), line_buffering=old.line_buffering,
        write_through=old.write_through,
    )  # fmt: skip


def _lenient(errors: str | None) -> str | None:
    """A character that a user's encoding lacks ends no command: it comes out as its number."""
    return "backslashreplace" if errors in {None, "strict"} else errors


def _flush(*, quietly: bool) -> None:
    """Write what is left, here and not in the interpreter's last moments, where nobody could say what went wrong."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            _drop(sys.stdout.fileno())
        if not quietly:
            raise


def _drop(place: int) -> None:
    """Let all that is written to `place` vanish."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, place)
    os.close(nowhere)


#: Erases the line of a terminal.
_CLEAR = "\r\x1b[K"


class Waiting:
    """A spinner on the terminal, with words and seconds, while something takes long; nothing in a pipe. A context.

    A nested one only changes the words. Each update is a single write, so forks are safe.
    """

    _all: ClassVar[list[Waiting]] = []

    def __init__(self, words: str) -> None:
        self.words = words
        self.is_shown = os.isatty(2) and os.environ.get("TERM") != "dumb"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)

    def __enter__(self) -> Self:
        self._all.append(self)
        if self.is_shown and self._all[0] is self:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._all.remove(self)
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
            _to_terminal(_CLEAR)

    def count(self, done: int, total: int, what: str) -> None:
        """Show how much is done."""
        self.words = f"{done:,} of {total:,} {what}"

    @classmethod
    def clear(cls) -> None:
        """Erase the line before something is printed."""
        if cls._all and cls._all[0].is_shown:
            _to_terminal(_CLEAR)

    def _turn(self) -> None:
        began = time.monotonic()
        for mark in itertools.cycle("|/-\\"):
            if self._over.wait(0.25):
                break
            if (seconds := time.monotonic() - began) >= 1:
                words = (self._all or [self])[-1].words
                _to_terminal(f"\r{mark} {seconds:.0f} s  {words}"[: shutil.get_terminal_size().columns] + "\x1b[K\r")


def _to_terminal(text: str) -> None:
    with contextlib.suppress(OSError):  # it was closed
        os.write(2, text.encode())


class Notices:
    """One thread leaves them, another one takes them. A trouble is left once, for as long as it lasts."""

    def __init__(self) -> None:
        self._left: deque[str] = deque()  # its append and popleft are atomic
        self._troubles: set[str] = set()

    def note(self, *sentences: str) -> None:
        """Leave sentences."""
        self._left.extend(sentences)

    def trouble(self, sentence: str, cause: str = "") -> None:
        """Leave `sentence`, unless one of the same `cause` (by default: the same one) was left since it was `over`."""
        if (cause or sentence) not in self._troubles:
            self._troubles.add(cause or sentence)
            self._left.append(sentence)

    def over(self, sentence: str = "") -> None:
        """All troubles are over; `sentence` says so, if there were any."""
        if self._troubles and sentence:
            self._left.append(sentence)
        self._troubles.clear()

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what was left, oldest first."""
        while self._left:
            say(self._left.popleft())
