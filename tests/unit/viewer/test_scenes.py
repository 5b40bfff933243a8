"""Scene files of strangers: what nobody could draw is refused in half a sentence, whatever its bytes."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
from fake_agents import GEOMS, a_header, put_scene, scene_bytes
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from anchorleg.live.batches import MOST_SCENE_BYTES
from viewer.live.scenes import MOST_UNPACKED, BadSceneError, Scene, SceneShelf, checked_scene
from viewer.live.streams import jpeg_size

NAN = float("nan")


def judged(data: bytes) -> Scene:
    return checked_scene(data, hashlib.sha256(data).hexdigest())


def with_geom(**more: Any) -> dict[str, Any]:
    return a_header([{**GEOMS[1], **more}])


def with_mesh(**more: Any) -> dict[str, Any]:
    header = a_header()
    return {**header, "meshes": [{**header["meshes"][0], **more}]}


def test_meshes_have_no_bytes_in_common() -> None:
    header = a_header()
    twice = {**header, "meshes": header["meshes"] * 2}
    with refused("scene.meshes-too-large"):
        judged(scene_bytes(twice))


@pytest.mark.parametrize(
    "header",
    [
        {},
        a_header(version=2),
        a_header(bodies=[]),
        {**a_header(), "bodies": [7]},
        {**a_header(), "bodies": ["b"] * 513},
        {**a_header(), "geoms": {}},
        a_header([GEOMS[0]] * 4097),
        a_header(camera={}),
        a_header(camera={"lookat": [0, 0, NAN], "distance": 1, "azimuth": 0, "elevation": 0}),
        a_header(camera={"lookat": [0, 0, 0], "distance": 0, "azimuth": 0, "elevation": 0}),
        with_geom(body=1),
        with_geom(body=-2),
        with_geom(body=True),
        with_geom(type="hfield"),
        with_geom(type="mesh", mesh=1),
        with_geom(type="mesh", mesh=None),
        with_geom(size=[1, 1]),
        with_geom(size=[1, 1, -1]),
        with_geom(pos=[0, 0, 1e30]),
        with_geom(pos=[0, 0, "1"]),
        with_geom(quat=[0, 0, 0, 0]),
        with_geom(rgba=[1, 0, 0, NAN]),
        with_mesh(count=5000),
        with_mesh(faces=5000),
        with_mesh(count=3),
        with_mesh(vertices=1),
        with_mesh(triangles=25),
        with_mesh(triangles=-24),
        with_mesh(wide=1),
        with_mesh(unit=0),
        with_mesh(unit=NAN),
        with_mesh(place=[0, 0, NAN]),
    ],
)
def test_what_nobody_could_draw_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(BadSceneError):
        judged(scene_bytes(header))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bytes(MOST_SCENE_BYTES + 1), "scene.too-large"),
        (gzip.compress(bytes(MOST_UNPACKED + 1), mtime=0), "scene.unpacks-to-too-much"),
        (scene_bytes(a_header()) + b"more", "scene.not-gzip"),
        (scene_bytes(a_header())[:-9], "scene.not-gzip"),
        (b"", "scene.not-gzip"),
        (b"no gzip", "scene.unreadable"),
        (gzip.compress(struct.pack("<I", 2**31), mtime=0), "scene.header-too-long"),
        (gzip.compress(struct.pack("<I", 4000) + b"[" * 4000, mtime=0), "scene.unreadable"),
    ],
    ids=["large", "bomb", "more", "less", "empty", "other", "header", "nested"],
)
def test_bombs_and_torn_files_are_refused(data: bytes, name: str) -> None:
    with refused(name):
        judged(data)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_it_is_a_bad_scene(raw: bytes) -> None:
    for data in (raw, gzip.compress(raw, mtime=0), gzip.compress(struct.pack("<I", len(raw)) + raw)):
        with pytest.raises(BadSceneError):
            judged(data)


def test_a_file_with_another_sum_is_not_believed() -> None:
    with refused("scene.wrong-sum"):
        checked_scene(scene_bytes(a_header()), 64 * "0")


def test_a_shelf_looks_again_for_what_was_not_there_and_not_at_once(tmp_path: Path) -> None:
    data, shelf = scene_bytes(a_header()), SceneShelf()
    name = hashlib.sha256(data).hexdigest()
    assert shelf.get(tmp_path, name, 0) is None
    put_scene(tmp_path, data)
    assert shelf.get(tmp_path, name, 0.5) is None
    assert isinstance(shelf.get(tmp_path, name, 2), Scene)
    (tmp_path / f"{name}.scene").unlink()
    assert isinstance(shelf.get(tmp_path, name, 3), Scene), "it is kept"
    (tmp_path / f"{64 * 'a'}.scene").write_bytes(data)
    assert shelf.get(tmp_path, 64 * "a", 3) == "its checksum is wrong"
    (tmp_path / f"{64 * 'b'}.scene").symlink_to("/etc/passwd")
    assert shelf.get(tmp_path, 64 * "b", 3) is None, "a link is not followed"


@given(st.binary(max_size=300))
def test_no_bytes_are_too_strange_for_a_size(data: bytes) -> None:
    found = jpeg_size(b"\xff\xd8" + data)
    assert found is None or len(found) == 2
