"""Remotes as people write them, and the file that `setup` stores."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from syncd.errors import ConfigError
from syncd.remote import Remote, Settings, load_settings, parse_remote, settings_file, store_settings

STORED = Settings(
    remote=Remote(path="/runs/mt10/shared", user="me", host="gpu", port=2222, command="/opt/syncd", key=Path("/k")),
    name="me-laptop",
)


def parsed(text: str, settings: Settings | None = None, **environ: str) -> Remote:
    return parse_remote(text, environ={"HOME": "/home/me", **environ}, settings=settings or Settings())


@pytest.mark.parametrize(
    ("text", "user", "host", "path"),
    [
        ("me@gpu.edu:/runs/x", "me", "gpu.edu", "/runs/x"),
        ("gpu:runs/x", None, "gpu", "runs/x"),
        ("gpu:~/runs/x", None, "gpu", "runs/x"),
        ("gpu:~/", None, "gpu", "."),
        ("me@site@gpu:/x:y", "me@site", "gpu", "/x:y"),
        ("me@[::1]:/x", "me", "::1", "/x"),
        ("/local/x", None, None, "/local/x"),
        ("./with:colon", None, None, "/here/with:colon"),
        ("shared", None, None, "/here/shared"),
    ],
)
def test_a_remote_is_what_scp_would_make_of_it(text: str, user: str | None, host: str | None, path: str):
    remote = parse_remote(text, environ={"HOME": "/home/me"}, settings=Settings(), folder=Path("/here"))
    assert (remote.user, remote.host, remote.path) == (user, host, path)


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=id:/x", "u@-h:/x", "-u@h:/x", "gpu:", "@gpu:/x", ":/x", "gpu:~bob/x", "ssh://gpu/x", "g pu:/x",
     "gpu;id:/x", "gpu:/a\nb", "$(id)@gpu:/x", "gpu:-x", ""],
)  # fmt: skip
def test_what_is_none_is_refused_in_one_sentence(text: str):
    with pytest.raises(ConfigError) as error:
        parsed(text)
    assert error.value.id.startswith("remote.")


@given(st.text(max_size=60))
def test_no_text_becomes_an_option_of_ssh(text: str):
    try:
        remote = parsed(text)
    except ConfigError:
        return
    assert remote.is_local or (not remote.account.startswith("-") and remote.account.isprintable())
    assert not remote.path.startswith("-")


def test_nothing_means_what_is_stored_and_the_environment_wins():
    assert parsed("", STORED) == STORED.remote
    assert STORED.remote is not None
    moved = parsed("", STORED, SYNC_CLUSTER_USER="you", SYNC_CLUSTER_HOST="login2")
    assert moved == STORED.remote.model_copy(update={"user": "you", "host": "login2"})
    assert parsed("me@gpu:/x", SYNC_CLUSTER_USER="you").user == "you"
    assert parsed("/local", SYNC_CLUSTER_HOST="gpu").is_local
    with refused("remote.unusable", remote="SYNC_CLUSTER_HOST", field="host"):
        parsed("", STORED, SYNC_CLUSTER_HOST="-oX")


def test_the_environment_alone_names_a_remote_where_nothing_is_stored():
    alone = parsed("", SYNC_CLUSTER_USER="you", SYNC_CLUSTER_HOST="login2", SYNC_CLUSTER_PATH="~/runs/x")
    assert (str(alone), alone.key, alone.port) == ("you@login2:runs/x", None, None)
    assert alone.known_hosts == Path("/home/me/.config/anchorleg/known_hosts")
    assert STORED.remote is not None
    assert parsed("", STORED, SYNC_CLUSTER_PATH="/other") == STORED.remote.model_copy(update={"path": "/other"})
    assert parsed("me@gpu:/x", STORED, SYNC_CLUSTER_PATH="/other").path == "/x"  # what is typed is meant


def test_what_is_stored_is_read_back_and_nobody_else_may_read_it(tmp_path: Path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nowhere"}
    assert load_settings(environ) == Settings()
    path = store_settings(STORED, environ)
    assert path == settings_file(environ) == tmp_path / "anchorleg" / "syncd.json"
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]
    assert load_settings(environ) == STORED
    assert store_settings(load_settings(environ), environ) == path


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fodler": "/x"}, "fodler"),
        ({"remote": {"path": "/x", "hots": "gpu"}}, "remote.hots"),
        ({"remote": {"path": "/x", "host": "-oX"}}, "remote.host"),
        ({"remote": {"path": "/x", "port": 0}}, "remote.port"),
        ({"name": "../x"}, "name"),
        (None, None),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, change: dict[str, object] | None, field: str | None):
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = settings_file(environ)
    path.parent.mkdir()
    path.write_text("{" if change is None else json.dumps(change))
    with (
        refused("settings.no-json", path=path)
        if field is None
        else refused("settings.unusable", path=path, field=field)
    ):
        load_settings(environ)
