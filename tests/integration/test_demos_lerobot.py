"""LeRobotDataset v3.0: what is written has upstream's layout, and is read back; what is not understood is refused.

`lerobot` cannot be installed beside this Python, torch and numpy. So its layout is asked of the files field by field,
as its sources have it (huggingface/lerobot 7427f31: dataset_metadata, dataset_writer, feature_utils, io_utils).
"""

from __future__ import annotations

import json
import re
import shutil
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("av")
pytest.importorskip("av")
pytest.importorskip("pyarrow")

import pyarrow as pa
from demos import all_of, film, recorded, silent
from pyarrow import parquet
from refused import refused

from trainer.demos import lerobot_export, store
from trainer.demos.lerobot import IMAGES, import_lerobot
from trainer.demos.lerobot_export import export_lerobot
from trainer.demos.store import ACTION, DemoEpisode, Demos, DemosManifest, DemoSource, DemosWriter
from trainer.envs.spaces import IMAGE, ArraySpec, Discrete, Spaces

pytestmark = pytest.mark.trainer
CAMERAS = ("above", "aside")
#: Upstream's DEFAULT_FEATURES, and what a recorder adds.
FEATURES = {
    "observation.images.above": ("video", [32, 32, 3]),
    "observation.images.aside": ("video", [32, 32, 3]),
    "observation.state": ("float32", [2]),
    "observation.environment_state": ("float32", [4]),
    "action": ("float32", [2]),
    "next.reward": ("float32", [1]),
    "next.done": ("bool", [1]),
    "next.success": ("bool", [1]),
    "timestamp": ("float32", [1]),
    "frame_index": ("int64", [1]),
    "episode_index": ("int64", [1]),
    "index": ("int64", [1]),
    "task_index": ("int64", [1]),
}
STATISTICS = ["min", "max", "mean", "std", "count"]


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("demos") / "out", 7, cameras=CAMERAS)


@pytest.fixture(scope="module")
def written(demos, tmp_path_factory):
    return export_lerobot(demos, tmp_path_factory.mktemp("lerobot") / "spots", silent)


@pytest.fixture
def dataset(written, tmp_path):
    """One to be changed."""
    return shutil.copytree(written, tmp_path / "dataset")


def changed(dataset, **values):
    path = dataset / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_what_is_written_is_read_back(demos, written, tmp_path):
    again = import_lerobot(written, tmp_path / "back", 32, (), silent)
    assert again.manifest.cameras == CAMERAS
    assert again.manifest.tasks == ("touch",)
    for (told, arrays), (back, found) in zip(all_of(demos), all_of(again), strict=True):
        assert (back.frames, back.actions, back.success) == (told.actions, told.actions, True)
        for name in ("action", "reward", "success", "state", "privileged"):
            assert np.array_equal(found[name], arrays[name][: told.actions]), name
        off = np.abs(found["image"].astype(int) - arrays["image"][: told.actions].astype(int))
        assert off.mean() < 6
    chosen = import_lerobot(written, tmp_path / "one", 16, ["observation.images.aside"], silent)
    assert chosen.manifest.frame == (3, 16, 16)
    assert chosen.manifest.cameras == ("aside",)


def judged(demos, success):
    """The same episodes, whose success is what it is told to be: the steps say otherwise."""
    block = demos.manifest.blocks[0]
    said = [told.model_copy(update={"success": value}) for told, value in zip(block.episodes, success, strict=True)]
    blocks = (block.model_copy(update={"episodes": tuple(said)}),)
    return Demos(demos.folder, demos.manifest.model_copy(update={"blocks": blocks}))


def success_of(dataset, out):
    return [told.success for told, _ in all_of(import_lerobot(dataset, out, 32, (), silent))]


def test_whether_an_episode_succeeded_comes_back_whichever_of_its_steps_counts(demos, tmp_path):
    said = [True, False, True, False, False, True, True]
    written = export_lerobot(judged(demos, said), tmp_path / "spots", silent)
    assert success_of(written, tmp_path / "back") == said
    path = written / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    assert table.column("success").to_pylist() == said
    parquet.write_table(table.drop_columns(["success"]), path)  # as others write it
    assert success_of(written, tmp_path / "any") == [True] * 7
    written = export_lerobot(judged(demos, [None] * 7), tmp_path / "untold", silent)
    assert success_of(written, tmp_path / "nobody") == [None] * 7


def test_info_says_what_upstreams_reader_asks_for(written, demos):
    info = json.loads((written / "meta/info.json").read_text())
    assert {key: (feature["dtype"], feature["shape"]) for key, feature in info["features"].items()} == FEATURES
    assert all(set(feature) >= {"dtype", "shape", "names"} for feature in info["features"].values())
    frames = sum(told.actions for told in demos.manifest.episodes)
    assert {name: value for name, value in info.items() if name != "features"} == {
        "codebase_version": "v3.0",
        "fps": 30,
        "total_episodes": 7,
        "total_frames": frames,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "robot_type": None,
        "splits": {"train": "0:7"},
    }


def test_the_data_has_upstreams_columns_and_types_and_a_group_of_rows_an_episode(written):
    file = parquet.ParquetFile(written / "data/chunk-000/file-000.parquet")
    kinds = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}
    expected = {
        name: kinds[kind] if shape == [1] else pa.list_(kinds[kind], shape[0])
        for name, (kind, shape) in FEATURES.items()
        if kind != "video"
    }
    assert {field.name: field.type for field in file.schema_arrow} == expected
    assert file.num_row_groups == 7
    table = file.read().to_pydict()
    assert table["index"] == list(range(file.metadata.num_rows))
    assert np.allclose(table["timestamp"], np.array(table["frame_index"]) / 30)
    ends = np.flatnonzero(table["next.done"])
    assert np.array_equal(ends, np.flatnonzero(np.diff([*table["episode_index"], 7])))


def test_the_table_of_episodes_says_where_each_lies(written, demos):
    table = parquet.read_table(written / "meta/episodes/chunk-000/file-000.parquet")
    names = ["episode_index", "tasks", "length", "data/chunk_index", "data/file_index"]
    names += ["dataset_from_index", "dataset_to_index"]
    parts = ["chunk_index", "file_index", "from_timestamp", "to_timestamp"]
    names += [f"videos/observation.images.{camera}/{part}" for camera in CAMERAS for part in parts]
    names += [f"stats/{feature}/{what}" for feature in FEATURES for what in STATISTICS]
    names += ["meta/episodes/chunk_index", "meta/episodes/file_index", "success"]
    assert sorted(table.column_names) == sorted(names)
    rows = table.to_pylist()
    lengths = [told.actions for told in demos.manifest.episodes]
    assert [row["length"] for row in rows] == lengths
    assert [row["dataset_to_index"] for row in rows] == np.cumsum(lengths).tolist()
    assert [row["videos/observation.images.aside/from_timestamp"] * 30 for row in rows] == pytest.approx(
        [0, *np.cumsum(lengths)[:-1]]
    )
    assert rows[0]["tasks"] == ["touch"]
    assert np.shape(rows[0]["stats/observation.images.above/mean"]) == (3, 1, 1)


def test_tasks_are_a_table_that_pandas_finds_its_index_in(written):
    table = parquet.read_table(written / "meta/tasks.parquet")
    assert table.to_pydict() == {"task_index": [0], "task": ["touch"]}
    about = json.loads(table.schema.metadata[b"pandas"])
    assert about["index_columns"] == ["task"]
    assert [column["field_name"] for column in about["columns"]] == ["task_index", "task"]


def test_statistics_of_all_are_those_of_their_episodes(written, demos):
    rows = parquet.read_table(written / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    whole = json.loads((written / "meta/stats.json").read_text())
    assert whole.keys() == FEATURES.keys()
    actions = [arrays["action"].astype(float) for _, arrays in all_of(demos)]
    first = {what: rows[0][f"stats/action/{what}"] for what in STATISTICS}
    together, found = np.concatenate(actions), whole["action"]
    for told, values in ((first, actions[0]), (found, together)):
        for what in ("min", "max", "mean", "std"):
            assert np.allclose(told[what], getattr(values, what)(0)), what
    assert (first["count"], found["count"]) == ([len(actions[0])], [len(together)])


def test_each_block_has_files_of_its_own_and_a_full_folder_is_followed_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_BLOCK_EPISODES", 2)
    monkeypatch.setattr(lerobot_export, "CHUNK_FILES", 2)
    demos = recorded(tmp_path / "demos", 7)
    written = export_lerobot(demos, tmp_path / "spots", silent)
    places = [f"chunk-00{chunk}/file-00{file}" for chunk in (0, 1) for file in (0, 1)]
    for folder, kind in (("data", ".parquet"), ("videos/observation.images.above", ".mp4")):
        found = sorted(str(path.relative_to(written / folder)) for path in (written / folder).glob("*/*"))
        assert found == [f"{place}{kind}" for place in places]
    again = import_lerobot(written, tmp_path / "back", 32, (), silent)
    for (told, arrays), (_, found) in zip(all_of(demos), all_of(again), strict=True):
        assert np.array_equal(found["action"], arrays["action"])
        assert np.abs(found["image"].astype(int) - arrays["image"][: told.actions].astype(int)).mean() < 6


def choosing(folder):
    """Twelve choices among five, by grey frames."""
    frames = np.random.default_rng(0).integers(0, 256, (13, 1, 4, 4), np.uint8).repeat(8, 2).repeat(8, 3)
    spaces = Spaces({IMAGE: ArraySpec(frames.shape[1:], "uint8", 0.0, 255.0)}, Discrete(5), ("choose",), 12)
    plan = DemosManifest(
        source=DemoSource(kind="recorded", name="by hand", asked="nothing"),
        cameras=("render",),
        frame=frames.shape[1:],
        tasks=("choose",),
        spaces=spaces.as_json(),
    )
    writer = DemosWriter(folder, plan)
    told = DemoEpisode(name="one", frames=13, actions=12, fps=30)
    writer.add(told, {IMAGE: frames, ACTION: np.arange(12) % 4})
    return writer.finish()


def test_an_action_that_is_one_of_several_comes_back(tmp_path):
    chosen = choosing(tmp_path / "demos")
    dataset = export_lerobot(chosen, tmp_path / "dataset", silent)
    again = import_lerobot(dataset, tmp_path / "back", 32, (), silent)
    assert (again.manifest.opened.action, again.manifest.frame) == (Discrete(5), (3, 32, 32))  # a film has colours
    ((_, arrays),) = all_of(again)
    assert arrays[ACTION].dtype == np.int64
    assert arrays[ACTION].tolist() == [0, 1, 2, 3] * 3
    features = json.loads((dataset / "meta/info.json").read_text())["features"]
    del features["action"]["info"]
    changed(dataset, features=features)
    others = import_lerobot(dataset, tmp_path / "others", 32, (), silent)
    assert others.manifest.opened.action == Discrete(4)  # as far as anybody can see
    changed(dataset, features={**features, "action": {**features["action"], "info": {"choices": 3}}})
    with refused("lerobot.no-choices", most=3):
        import_lerobot(dataset, tmp_path / "wrong", 32, (), silent)


def features_of(dataset, **more):
    features = json.loads((dataset / "meta/info.json").read_text())["features"]
    changed(dataset, features={**features, **more})
    return features


def with_a_camera(dataset, key):
    features_of(dataset, **{key: features_of(dataset)["observation.images.above"]})


def with_single_images(dataset):
    told = {key: value for key, value in features_of(dataset).items() if value["dtype"] == "video"}
    features_of(dataset, **{key: {**value, "dtype": "image"} for key, value in told.items()})


def with_tasks(dataset, tasks):
    path = dataset / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.set_column(table.column_names.index("tasks"), "tasks", pa.array([tasks] * 7)), path)


ELSEWHERE = "../../{video_key}/{chunk_index:03d}.mp4"
FIRST = "chunk-000/file-000"


@pytest.mark.parametrize(
    ("harm", "wrong", "fields"),
    [
        (partial(changed, codebase_version="v2.1"), "lerobot.other-version", {"version": "v2.1"}),
        (partial(changed, data_path=ELSEWHERE), "lerobot.damaged", {"why": re.compile("^data_path: ")}),
        (partial(changed, video_path=ELSEWHERE), "lerobot.damaged", {"why": re.compile("^video_path: ")}),
        (lambda dataset: (dataset / "meta/info.json").unlink(), "demos.no-dataset", {}),
        (partial(with_a_camera, key="../../elsewhere"), "lerobot.camera-name", {}),
        (partial(with_a_camera, key="observation.images.\x1b[31m"), "lerobot.camera-name", {}),
        (with_single_images, "lerobot.no-camera", {}),
        (partial(features_of, action=3), "lerobot.damaged", {"why": re.compile(r"^features\.action")}),
        (partial(with_tasks, tasks=[{"name": 1}]), "lerobot.damaged", {}),
        (lambda dataset: (dataset / f"data/{FIRST}.parquet").write_bytes(b"PAR1 or not"), "lerobot.damaged", {}),
        (lambda dataset: (dataset / "meta/info.json").write_bytes(b"no"), "lerobot.no-json", {}),
        (lambda dataset: (dataset / f"videos/{IMAGES}above/{FIRST}.mp4").write_bytes(b"no"), "film.unreadable", {}),
        (
            lambda dataset: film(
                dataset / f"videos/{IMAGES}above/{FIRST}.mp4", np.zeros((9, 3, 32, 32), np.uint8), fps=30
            ),
            "lerobot.film-short",
            {},
        ),
    ],
)
def test_a_data_set_that_is_not_as_upstream_writes_it_is_refused_by_its_name(dataset, tmp_path, harm, wrong, fields):
    harm(dataset)
    with refused(wrong, **fields) as told:
        import_lerobot(dataset, tmp_path / "out", 32, (), silent)
    assert str(told.value).isprintable()


def test_episodes_of_one_task_are_taken_by_its_name_and_another_task_is_another_import(tmp_path):
    import point_demos

    points = point_demos.recorded(tmp_path / "points", episodes=2)
    folder, out = export_lerobot(points, tmp_path / "data set", silent), tmp_path / "out"
    one = import_lerobot(folder, out, point_demos.SIZE, (), silent, "middle")
    assert one.manifest.tasks == ("middle",)
    wanted = [arrays["action"] for told, arrays in all_of(points) if points.manifest.tasks[told.task] == "middle"]
    found = [arrays["action"] for _, arrays in all_of(one)]
    assert len(found) == len(wanted) == 2
    assert all(np.array_equal(mine, theirs[: len(mine)]) for mine, theirs in zip(found, wanted, strict=True))
    with refused("lerobot.unknown-camera", camera="front"):
        import_lerobot(folder, out, point_demos.SIZE, ["front"], silent)
    with refused("lerobot.unknown-task", task="midle", hint='did you mean "middle"?'):
        import_lerobot(folder, out, point_demos.SIZE, (), silent, "midle")
    for other in ("left", None):
        with refused("demos.others-there"):
            import_lerobot(folder, out, point_demos.SIZE, (), silent, other)


def test_rows_that_are_not_finite_or_too_few_are_refused(dataset, tmp_path):
    path = dataset / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.slice(0, table.num_rows - 1), path)
    with refused("lerobot.other-rows", episode=6):
        import_lerobot(dataset, tmp_path / "out", 32, (), silent)
    reward = pa.array(np.full(table.num_rows, np.nan, np.float32))
    at = table.column_names.index("next.reward")
    parquet.write_table(table.set_column(at, "next.reward", reward), path)
    with refused("lerobot.bad-numbers", length=1):
        import_lerobot(dataset, tmp_path / "other", 32, (), silent)


def test_what_a_data_set_cannot_hold_is_refused_and_leaves_nothing(demos, tmp_path):
    (tmp_path / "there").mkdir()
    with refused("demos.out-exists"):
        export_lerobot(demos, tmp_path / "there", silent)
    episodes = demos.manifest.blocks[0].episodes
    uneven = demos.manifest.blocks[0].model_copy(
        update={"episodes": (episodes[0].model_copy(update={"fps": 29.97}), *episodes[1:])}
    )
    odd = Demos(demos.folder, demos.manifest.model_copy(update={"blocks": (uneven,)}))
    with refused("demos.fps-not-whole", rates="29.97 and 30"):
        export_lerobot(odd, tmp_path / "out", silent)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def outside(folder):
    value = json.loads((folder / "demos.json").read_text())
    value["blocks"][0]["path"] = "../../000000.safetensors"
    (folder / "demos.json").write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "blocks/000000.safetensors").unlink(), "demos.unreadable"),
        (lambda folder: flip(folder / "blocks/000000.safetensors"), "demos.block-changed"),
        (lambda folder: (folder / "demos.json").write_text("{"), "demos.manifest-damaged"),
        (outside, "demos.manifest-damaged"),
    ],
)
def test_damage_is_said_with_the_file_that_it_is_in(demos, tmp_path, harm, words):
    harm(shutil.copytree(demos.folder, tmp_path / "demos"))
    with refused(words):
        all_of(Demos.open(tmp_path / "demos"))


@pytest.mark.parametrize("content", [b"hello", b"ffconcat version 1.0\nfile secret\n"])
def test_what_is_no_film_opens_no_other_file(dataset, tmp_path, content):
    path = dataset / f"videos/{IMAGES}above/{FIRST}.mp4"
    path.rename(path.parent / "secret")
    path.write_bytes(content)
    with refused("film.unreadable"):
        import_lerobot(dataset, tmp_path / "out", 32, (), silent)
