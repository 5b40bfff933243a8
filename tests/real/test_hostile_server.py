"""A server that lies to a laptop, over a real sshd. No terminal obeys it, no disk fills, the honest rest goes on."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from live_rings import newest_in, wish_in
from lying_server import CHUNK_BYTES, CHUNKS, COMMAND
from sshd import Laptop, Sshd
from watching import seen, settled, watching

from anchorleg.live.batches import JPEG, checked
from anchorleg.live.wanted import Wish
from anchorleg.words import sized
from syncd.laptop.capacity import MAX_BYTES
from syncd.outbox import Outbox, read_contributions
from syncd.remote import settings_file
from syncd.store import Shared

LIAR = Path(__file__).parents[1] / "support" / "lying_server.py"
HONEST = "honest-00000000"
#: Enough for `syncd pull` with numpy, and far less than the bomb would take.
MEMORY_KIB = 1_200_000


class Victim:
    """A laptop whose key brings it to a liar."""

    def __init__(self, sshd: Sshd, tmp_path: Path, attack: str) -> None:
        words = shlex.join([sys.executable, str(LIAR), *attack.split()])
        self.laptop: Laptop = sshd.new_client("anna", options=f'command="{words}"')
        self.env = {**settled(self.laptop, sshd, "/srv/run", command=None), "OPENBLAS_NUM_THREADS": "1"}
        self.folder = tmp_path / "mirror"
        self.remote = sshd.remote(self.laptop, "/srv/run", command=None)

    def syncd(self, *words: str) -> subprocess.CompletedProcess[str]:
        limited = ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "sh"]
        return subprocess.run(
            [*limited, sys.executable, "-P", "-m", "syncd", *words], env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def pull(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.syncd("pull", "", str(self.folder), *words)

    def has_the_honest_policy(self) -> bool:
        return seen(self.folder, HONEST) is not None


@pytest.fixture
def victim(sshd: Sshd, tmp_path: Path) -> Callable[[str], Victim]:
    return lambda attack: Victim(sshd, tmp_path, attack)


def is_plain(text: str) -> bool:
    """Whether a terminal shows it, and does nothing else."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


def strings_in(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings_in(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings_in(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.long
@pytest.mark.parametrize("attack", ["escapes", "goaway", "stderr"])
def test_no_word_of_a_server_is_obeyed_by_a_terminal(victim: Callable[[str], Victim], attack: str) -> None:
    laptop = victim(attack)
    for words in ((), ("--json",)):
        done = laptop.pull(*words)
        assert is_plain(done.stdout + done.stderr), done
        assert done.returncode == 6, done
        assert "Traceback" not in done.stderr
    assert "owned" in done.stdout + done.stderr, "what it said is shown, as text"


def test_what_is_kept_of_a_servers_words_is_plain(victim: Callable[[str], Victim]) -> None:
    laptop = victim("escapes")
    Outbox(laptop.folder).offer(HONEST, 0, b"a segment that is refused with an escape")
    with watching(laptop.folder, "", env=laptop.env) as watcher:
        watcher.live()
        wait_for(laptop.has_the_honest_policy, "the honest policy")
        wait_for(lambda: "the other side says" in str(watcher.word()), "the refusal of the segment")
        for words in ((), ("--json",)):
            shown = laptop.syncd("status", str(laptop.folder), *words)
            assert shown.returncode == 0, shown.stderr
            assert is_plain(shown.stdout)
            assert "owned" in shown.stdout
        assert is_plain(watcher.said())
    for file in (laptop.folder / "state").glob("*.json"):
        assert all(map(is_plain, strings_in(json.loads(file.read_bytes())))), file
    assert all(map(is_plain, read_contributions(laptop.folder).refused))


def test_nothing_of_a_manifest_is_offered_as_a_command(victim: Callable[[str], Victim]) -> None:
    laptop = victim("advice")
    done = laptop.pull()
    assert done.returncode == 6, done
    assert "metaworld" in done.stderr
    assert COMMAND not in done.stdout + done.stderr
    assert laptop.has_the_honest_policy()


def test_a_small_file_takes_little_memory(victim: Callable[[str], Victim]) -> None:
    laptop = victim("bomb")
    done = laptop.pull()
    assert (done.returncode, "Traceback" in done.stderr) == (6, False), done.stderr
    assert "evil-00000000/0 1-1 is skipped" in done.stderr
    assert laptop.has_the_honest_policy()


@pytest.mark.long
def test_a_mirror_is_bounded_and_status_says_so(victim: Callable[[str], Victim]) -> None:
    laptop = victim("curves")
    most = sized(MAX_BYTES)
    (laptop.folder / "state").mkdir(parents=True)
    before = Shared(laptop.folder).slot("evil-00000000", 0).metrics / "before-000000.jsonl"
    before.parent.mkdir(parents=True)
    before.touch()
    os.truncate(before, MAX_BYTES - 64 * 2**20)  # it takes no room
    with watching(laptop.folder, "", env=laptop.env) as watcher:
        watcher.live()
        wait_for(lambda: "has reached its limit" in str(watcher.word()), "the sentence")
        wait_for(laptop.has_the_honest_policy, "the honest policy")
        shown = laptop.syncd("status", str(laptop.folder))
        assert f"the mirror has reached its limit of {most}" in shown.stdout, shown.stdout
    held = sum(file.stat().st_size for file in laptop.folder.rglob("*.jsonl"))
    assert before.stat().st_size < held <= MAX_BYTES < before.stat().st_size + CHUNKS * CHUNK_BYTES


@pytest.mark.long
@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("live nan", "a number is not valid"),
        ("live large", "it cannot be read"),
        ("live kind", "its kind is unknown"),
        ("live bad kind", "a LiveBatch frame with a header unknown to this protocol"),
    ],
)
def test_agents_that_are_none_are_not_written_and_are_said(
    victim: Callable[[str], Victim], attack: str, words: str
) -> None:
    laptop = victim(attack)
    with watching(laptop.folder, "", env=laptop.env) as watcher:
        watcher.live()
        wait_for(laptop.has_the_honest_policy, "the honest policy")
        viewer = wish_in(laptop.folder, HONEST)

        def is_said() -> bool:
            viewer.renew((Wish(0, "any", 30),))
            return words in str(watcher.word())

        wait_for(is_said, "the sentence")
        assert is_plain(watcher.said())
    assert not list(laptop.folder.rglob("*.ring"))


@pytest.mark.long
def test_a_scene_with_another_sum_is_not_written(victim: Callable[[str], Victim]) -> None:
    laptop = victim("live scene")
    with watching(laptop.folder, "", env=laptop.env) as watcher:
        watcher.live()
        viewer = wish_in(laptop.folder, HONEST)

        def is_said() -> bool:
            viewer.renew((Wish(0, "any", 30),))
            return "checksum does not match its name" in str(watcher.word())

        wait_for(is_said, "the sentence")
        assert list(laptop.folder.rglob("*.ring"))
    assert not list(laptop.folder.rglob("*.scene"))


@pytest.mark.long
def test_words_of_an_agent_are_plain_where_they_are_shown(victim: Callable[[str], Victim]) -> None:
    laptop = victim("live words")
    with watching(laptop.folder, "", env=laptop.env) as watcher:
        watcher.live()
        viewer = wish_in(laptop.folder, HONEST)

        def is_here() -> bool:
            viewer.renew((Wish(0, "any", 30),))
            return newest_in(laptop.folder, HONEST) is not None and "nobody" in str(watcher.word())

        wait_for(is_here, "the batch and the sentence")
        assert is_plain(watcher.said())
    header, _ = checked(JPEG, newest_in(laptop.folder, HONEST) or b"")
    assert all(map(is_plain, strings_in(header)))
    for file in (laptop.folder / "state").glob("*.json"):
        assert all(map(is_plain, strings_in(json.loads(file.read_bytes())))), file


@pytest.mark.long
@pytest.mark.parametrize("attack", ["setup path", "setup command", "setup flood"])
def test_setup_stores_nothing_that_is_no_path_and_no_command(
    sshd: Sshd, victim: Callable[[str], Victim], attack: str
) -> None:
    laptop = victim(attack)
    before = settings_file(laptop.env).read_bytes()
    keys = ("--port", str(sshd.port), "--key", str(laptop.laptop.key), "--yes-host-key", sshd.fingerprint())
    done = laptop.syncd("setup", f"{sshd.user}@127.0.0.1:/srv/run", *keys)
    assert done.returncode == 6, done
    assert is_plain(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
    assert settings_file(laptop.env).read_bytes() == before
    assert laptop.syncd("status", str(laptop.laptop.home)).returncode == 0
