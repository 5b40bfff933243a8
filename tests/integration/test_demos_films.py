"""Films from a folder, by the real FFmpeg: what comes of them, and what is said of those that are broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("imageio_ffmpeg")
pytest.importorskip("av")

import imageio_ffmpeg
from daemons import PATIENCE_S
from demos import SIZE, all_of, episode, film, films, silent
from refused import refused

from trainer.demos import store
from trainer.demos.films import Film, import_films
from trainer.demos.store import Demos

pytestmark = pytest.mark.trainer


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def made_by_ffmpeg(film, *words, before=()):
    """The last one of `words`: a path."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *before, "-i", film, *words]
    subprocess.run(command, check=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    return words[-1]


def told(folder, **changed):
    value = json.loads((folder / "demos.json").read_text())
    (folder / "demos.json").write_text(json.dumps({**value, **changed}))


def of_another_task(folder):
    value = json.loads((folder / "demos.json").read_text())
    value["blocks"][0]["episodes"][0]["task"] = 3
    (folder / "demos.json").write_text(json.dumps(value))


def outside(folder):
    value = json.loads((folder / "demos.json").read_text())
    shutil.copy(folder / "blocks/000000.safetensors", folder.parent / "000000.safetensors")
    value["blocks"][0]["path"] = "../../000000.safetensors"
    (folder / "demos.json").write_text(json.dumps(value))


def test_every_frame_of_every_film_is_there_once_and_looks_as_it_did(tmp_path):
    shown = {name: episode(seed, frames) for seed, (name, frames) in enumerate([("b/two.mp4", 7), ("a.mp4", 12)])}
    for name, frames in shown.items():
        film(tmp_path / "films" / name, frames)
    (tmp_path / "films" / "notes.txt").write_text("no film")
    (tmp_path / "films" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    demos = import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, silent)
    found = all_of(demos)
    assert [(told.name, told.frames, told.fps) for told, _ in found] == [("a.mp4", 12, 10.0), ("b/two.mp4", 7, 10.0)]
    for told, arrays in found:
        off = np.abs(arrays["image"].astype(int) - shown[told.name].astype(int))
        assert off.mean() < 6  # colours are halved in a film
    assert demos.manifest.source.licence == "cc-by-4.0"


def test_a_wide_film_is_cut_to_its_middle_and_brought_to_size_by_area(tmp_path):
    wide = np.zeros((3, 3, 64, 128), np.uint8)
    wide[:, 0] = 255  # red, and a green middle
    wide[:, 0, :, 32:96], wide[:, 1, :, 32:96] = 0, 255
    with Film(film(tmp_path / "wide.mp4", wide), 16) as read:
        frames = np.stack(list(read.frames()))
    assert frames.shape == (3, 3, 16, 16)
    inner = frames[:, :, :, 2:-2].mean((0, 2, 3))
    assert inner[1] > 200
    assert inner[0] < 50


@pytest.mark.parametrize("fps", [3.0, 5.0, 25.0])
def test_so_many_pictures_a_second_are_those_that_ffmpeg_keeps(tmp_path, fps):
    path = film(tmp_path / "film.mp4", episode(0, 20))
    kept = made_by_ffmpeg(path, "-vf", f"fps={fps}", "-f", "rawvideo", "-pix_fmt", "rgb24", tmp_path / "kept.rgb")
    wanted = np.frombuffer(kept.read_bytes(), np.uint8).reshape(-1, SIZE, SIZE, 3).transpose(0, 3, 1, 2)
    with Film(path, SIZE, fps=fps) as read:
        found = np.stack(list(read.frames()))
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).mean() < 2


def test_a_start_is_exact(tmp_path):
    path = film(tmp_path / "film.mp4", episode(0, 40), seekable=True)
    with Film(path, SIZE) as read:
        whole = np.stack(list(read.frames()))
        for first in (1, 2, 9, 30, 39):
            assert np.array_equal(np.stack(list(read.frames((first - 0.5) / 10))), whole[first:]), first


def test_a_film_is_as_it_was_held(tmp_path):
    path, turned = film(tmp_path / "film.mp4", episode(0, 2)), tmp_path / "turned.mp4"
    made_by_ffmpeg(path, "-c", "copy", turned, before=("-display_rotation", "90"))
    kept = made_by_ffmpeg(turned, "-f", "rawvideo", "-pix_fmt", "rgb24", tmp_path / "kept.rgb")
    wanted = np.frombuffer(kept.read_bytes(), np.uint8).reshape(-1, SIZE, SIZE, 3).transpose(0, 3, 1, 2)
    with Film(turned, SIZE) as read:
        assert np.abs(np.stack(list(read.frames())).astype(int) - wanted).mean() < 2


def test_an_import_that_was_interrupted_goes_on_and_comes_to_the_same_bytes(tmp_path, monkeypatch):
    folder = films(tmp_path / "films", 5)
    monkeypatch.setattr(store, "_BLOCK_EPISODES", 2)
    whole = import_films(folder, tmp_path / "whole", SIZE, None, silent, silent)

    def interrupted(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_films(folder, tmp_path / "cut", SIZE, None, interrupted, silent)
    with refused("demos.incomplete", episodes=2):
        Demos.open(tmp_path / "cut")
    began = []
    again = import_films(folder, tmp_path / "cut", SIZE, None, lambda done, total: began.append(done), silent)
    assert began == [2, 3, 4, 5]
    assert again.manifest == whole.manifest
    for block in whole.manifest.blocks:
        assert (tmp_path / "cut/blocks" / block.path).read_bytes() == (
            tmp_path / "whole/blocks" / block.path
        ).read_bytes()


def test_a_folder_with_other_demonstrations_is_left_alone(tmp_path):
    folder = films(tmp_path / "films", 2)
    import_films(folder, tmp_path / "out", SIZE, None, silent, silent)
    with refused("demos.others-there"):
        import_films(folder, tmp_path / "out", 16, None, silent, silent)


def test_a_film_that_was_cut_short_is_taken_as_far_as_it_goes_and_that_is_said(tmp_path):
    path = film(tmp_path / "films/short.mp4", np.random.default_rng(0).integers(0, 255, (40, 3, 64, 64), np.uint8))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    said = []
    demos = import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, said.append)
    (told,) = demos.manifest.episodes
    assert told.was_cut
    assert 10 < told.frames < 40
    assert said == [f"short.mp4 is cut short: {told.frames / 10:.1f} of its 4.0 s could be read, and are taken"]


def test_a_film_whose_sound_is_longer_is_whole(tmp_path):
    quiet = film(tmp_path / "quiet.mp4", episode(0, 20))
    (tmp_path / "films").mkdir()
    sound = ("-f", "lavfi", "-i", "sine=duration=6", "-c:v", "copy", "-c:a", "aac")
    made_by_ffmpeg(quiet, *sound, tmp_path / "films/loud.mp4")
    said = []
    (told,) = import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, said.append).manifest.episodes
    assert (told.frames, told.was_cut, said) == (20, False, [])


def test_a_film_is_as_fast_and_as_long_as_its_pictures_are_whatever_its_title_says(tmp_path):
    title = "title=Video: the best of 60 fps, Duration: 00:09:00.00"
    path = made_by_ffmpeg(
        film(tmp_path / "plain.mp4", episode(0, 20)), "-c", "copy", "-metadata", title, tmp_path / "a.mp4"
    )
    with Film(path, SIZE) as read:
        assert (read.fps, read.seconds) == (10.0, 2.0)


def test_a_film_of_a_thousand_pictures_a_second_is_read_as_such(tmp_path):
    path = made_by_ffmpeg(
        film(tmp_path / "plain.mp4", episode(0, 20)), "-c", "mpeg4", "-r", "1000", tmp_path / "quick.mkv"
    )
    with Film(path, SIZE) as read:
        assert read.fps == 1000


def test_a_name_that_no_json_can_say_is_refused_before_anything_is_decoded(tmp_path):
    films(tmp_path / "films", 1)
    os.rename(tmp_path / "films/000.mp4", os.fsencode(tmp_path / "films") + b"/caf\xe9.mp4")
    with refused("demos.name-not-utf8"):
        import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, silent)
    assert not (tmp_path / "out").exists()


def test_a_film_that_is_broken_inside_is_refused_with_its_name_and_the_second(tmp_path):
    path = film(tmp_path / "films/broken.mp4", np.random.default_rng(0).integers(0, 255, (40, 3, 64, 64), np.uint8))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4000] = bytes(255 for _ in range(4000))
    path.write_bytes(data)
    with refused("film.cut"):
        import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, silent)


@pytest.mark.parametrize("content", [b"", b"hello", b"ffconcat version 1.0\nfile secret\n"])
def test_what_is_no_film_is_refused_and_opens_no_other_file(tmp_path, content):
    film(tmp_path / "secret.mp4", episode(0)).rename(tmp_path / "secret")
    path = tmp_path / "none.mp4"
    path.write_bytes(content)
    with refused("film.unreadable"):
        Film(path, SIZE)


def test_a_folder_without_films_says_what_is_taken_for_one(tmp_path):
    with refused("demos.no-films"):
        import_films(tmp_path, tmp_path / "out", SIZE, None, silent, silent)


def test_an_episode_that_nobody_could_hold_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    films(tmp_path / "films", 1)
    monkeypatch.setattr("trainer.demos.films.MAX_EPISODE_BYTES", 5 * 3 * SIZE * SIZE)
    with refused("demos.film-too-long", most=5):
        import_films(tmp_path / "films", tmp_path / "out", SIZE, None, silent, silent)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "blocks/000000.safetensors").unlink(), "demos.unreadable"),
        (lambda folder: flip(folder / "blocks/000000.safetensors"), "demos.block-changed"),
        (lambda folder: (folder / "demos.json").write_text("{"), "demos.manifest-damaged"),
        (lambda folder: told(folder, frame=[3, 64, 64]), "demos.block-damaged"),
        (of_another_task, "demos.manifest-damaged"),
        (outside, "demos.manifest-damaged"),
    ],
)
def test_damage_is_said_with_the_file_that_it_is_in(tmp_path, harm, words):
    import_films(films(tmp_path / "films", 2), tmp_path / "out", SIZE, None, silent, silent)
    harm(tmp_path / "out")
    with refused(words):
        all_of(Demos.open(tmp_path / "out"))
