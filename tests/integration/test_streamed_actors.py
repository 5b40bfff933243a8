"""Actors that may be watched: what they show, and that what they contribute is what really happened."""

from __future__ import annotations

import pytest
from daemons import wait_for

pytest.importorskip("metaworld")

from playing_actors import actors
from published import RUN, publish, training_of

from anchorleg.live.batches import POSE, checked
from anchorleg.live.ring import RingReader, newest_number
from anchorleg.live.wanted import Asking, Wish
from syncd.streamed import BEAT, StreamedSlot
from trainer.sharing.policies import suite_of_manifest
from trainer.sharing.segment import decode
from trainer.sharing.spotcheck import Resimulator

pytestmark = pytest.mark.trainer
TRAINING = training_of(horizon=40)


class Watcher:
    """Somebody whose wish the client of this machine has left for the actors."""

    def __init__(self, place: StreamedSlot) -> None:
        place.live_file.parent.mkdir(parents=True, exist_ok=True)
        self.place, self.asking = place, Asking(place.live_file)
        self.ring = place.folder / "any.ring"

    def until(self, condition, what):
        def look():
            self.asking.renew((Wish(0, "any", 30),))
            return condition()

        wait_for(look, what)


def segments_in(folder):
    return [path for path in (folder / "outbox" / "new").rglob("*") if path.is_file()]


@pytest.mark.long
def test_they_show_themselves_while_somebody_watches_and_what_they_give_happened(tmp_path):
    manifest = publish(tmp_path, training=TRAINING)
    place = StreamedSlot(tmp_path, RUN, 0)
    with actors(tmp_path, stream=True, num_envs=2) as (screen, _):
        wait_for((place.folder / BEAT).exists, "the offer")
        wait_for(lambda: screen.last.recording.recorded >= 2, "segments")
        assert [path.name for path in place.folder.iterdir()] == [BEAT], "nobody watches"
        watcher = Watcher(place)
        watcher.until(lambda: newest_number(watcher.ring), "a batch")
        [cell] = RingReader(watcher.ring).newer()
        header, _ = checked(cell.kind, cell.payload)
        assert (cell.kind, header["origin"], header["attempt"]) == (POSE, "actors", 1)
        assert (place.folder / f"{header['scene']}.scene").exists()
        before = screen.last.recording.recorded
        watcher.until(lambda: screen.last.recording.recorded >= before + 10, "segments that were watched")
        publish(tmp_path, training=TRAINING, attempt=2, seq=1)
        watcher.until(lambda: newest_header(watcher.ring)["attempt"] == 2, "batches with the next attempt's policy")
    assert not (place.folder / BEAT).exists()
    suite = suite_of_manifest(manifest)
    resimulator, spaces = Resimulator(suite), suite.open().spaces
    redone = [resimulator.redo(decode(path.read_bytes(), spaces)) for path in segments_in(tmp_path)]
    assert len(redone) >= 12
    assert {one.gap for one in redone} == {0.0}, "to the last bit"


def newest_header(ring):
    [cell] = RingReader(ring).newer()
    return checked(cell.kind, cell.payload)[0]


def test_a_folder_that_cannot_be_written_ends_the_showing_alone(tmp_path):
    publish(tmp_path, training=TRAINING)
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "live").write_text("in the way")
    with actors(tmp_path, stream=True, num_envs=2) as (screen, _):
        wait_for(lambda: screen.last and screen.last.recording and screen.last.recording.recorded >= 2, "segments")
    assert [note for note in screen.notes if "not shown" in note]
