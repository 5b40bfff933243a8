"""The other side: which `$SHARED`, on which host, as whom, by which program; and what `syncd setup` stored about it.

The file is `$XDG_CONFIG_HOME/anchorleg/syncd.json` (on macOS `~/Library/Application Support/anchorleg/syncd.json`),
mode 0600, written durably. It holds no secret: keys stay where ssh has them, passwords are never stored.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from anchorleg.files import write_bytes
from anchorleg.places import own_folder, user_path
from anchorleg.words import did_you_mean
from syncd.errors import ConfigError, InvalidFieldError
from syncd.shared.layout import NAME, writing

#: A name that ssh can never take for an option, a shell for more than a word, or a path for a folder.
#: Backslash and @ inside: accounts of a domain (`AD\me`, `me@site`).
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@\\-]{0,80}")
#: A host name, an alias of ~/.ssh/config, an IPv4 or (without its brackets) IPv6 address with a zone.
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
#: Longer than any system allows a path to be.
_LONGEST_PATH = 4096


def _is_plain(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_PATH and text.isprintable()


def is_absolute_path(text: str) -> bool:
    """Whether `text` can be the absolute path of a folder or a program over there."""
    return text.startswith("/") and _is_plain(text)


class Remote(BaseModel):
    """One `$SHARED` and how to get there. Without `host` it is a folder that this machine mounts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        description="$SHARED over there: absolute, or relative to the login folder. Absolute where host is None."
    )
    user: str | None = Field(default=None, description="Account over there; None: what ssh's own config says.")
    host: str | None = Field(default=None, description="Host name, address, or alias of ~/.ssh/config.")
    port: int | None = Field(default=None, ge=1, le=65535, description="None: what ssh's own config says, else 22.")
    command: str | None = Field(default=None, description="Absolute path of `syncd` over there; None: on its PATH.")
    key: Path | None = Field(default=None, description="Private key file; None: ssh's own choice.")
    known_hosts: Path | None = Field(default=None, description="Our file of pinned host keys, asked first.")
    ssh_config: Path | None = Field(default=None, description="Instead of ~/.ssh/config.")

    @field_validator("user", "host", "path", "command")
    @classmethod
    def _is_what_it_says(cls, value: str | None, field: ValidationInfo) -> str | None:
        if value is None:
            return value
        is_one: dict[str, Callable[[str], object]] = {
            "user": _USER.fullmatch,
            "host": _HOST.fullmatch,
            "path": lambda text: _is_plain(text) and not text.startswith("-"),
            "command": is_absolute_path,
        }
        if not is_one[str(field.field_name)](value):
            raise InvalidFieldError("remote.bad-field", value=value)
        return value

    @property
    def is_local(self) -> bool:
        """Whether the folder is mounted here, so that nothing goes through ssh."""
        return self.host is None

    @property
    def account(self) -> str:
        """`user@host`, or `host`; "" where it is local. As ssh takes it on its command line."""
        if self.host is None:
            return ""
        return f"{self.user}@{self.host}" if self.user else self.host

    def __str__(self) -> str:
        """As a person writes it: `user@host:path`."""
        if self.host is None:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.path}" if self.user else f"{host}:{self.path}"


#: Environment variables that take the place of the user and the host of any remote, and of the stored one's folder.
USER_VARIABLE = "SYNC_CLUSTER_USER"
HOST_VARIABLE = "SYNC_CLUSTER_HOST"
PATH_VARIABLE = "SYNC_CLUSTER_PATH"
DEFAULT_FOLDER = Path("~/shared_weights")


class Settings(BaseModel):
    """What `syncd setup` stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    remote: Remote | None = Field(default=None, description="The other side; None before `syncd setup`.")
    folder: Path = Field(default=DEFAULT_FOLDER, description="The mirror on this machine (DIR).")
    name: str | None = Field(default=None, description="Contributor name: the inbox over there is called so.")

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, value: Any) -> Any:
        gone = {"transport", "bwlimit"}
        return {name: each for name, each in value.items() if name not in gone} if isinstance(value, dict) else value

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, value: str | None) -> str | None:
        if value is not None and not NAME.fullmatch(value):
            raise InvalidFieldError("settings.bad-name", name=value)
        return value

    def mirror_at(self, folder: Path | str | None) -> Path:
        """The mirror that a user means by DIR, absolute; left out: the stored one."""
        return Path(os.path.abspath(user_path(folder or self.folder)))


def config_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where the settings and the pinned host keys lie. It need not exist yet."""
    return own_folder("config", environ, platform)


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Path of the stored settings."""
    return config_folder(environ) / "syncd.json"


def known_hosts_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Path of the host keys that `setup` pinned, in OpenSSH's known_hosts format."""
    return config_folder(environ) / "known_hosts"


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """What is stored, or the defaults where nothing is. Errors: ConfigError that names the file and the field."""
    path = settings_file(environ)
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):  # the second: of an account without a home folder
        return Settings()
    except OSError as error:
        raise ConfigError("settings.unreadable", path=path, why=error.strerror) from error
    except ValueError as error:
        raise ConfigError("settings.no-json", path=path) from error
    try:
        return Settings.model_validate(value)
    except ValidationError as error:
        raise ConfigError("settings.unusable", path=path, **_first_mistake(error)) from error


def _first_mistake(error: ValidationError) -> dict[str, Any]:
    """The `field` of the first mistake, and `why`; the nearest known name where there is no such field."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    why: object = first.get("ctx", {}).get("error", first["msg"])
    if first["type"] == "extra_forbidden":
        known = list((Remote if place[:1] == ["remote"] else Settings).model_fields)
        why = InvalidFieldError("settings.unknown-field", hint=did_you_mean(place[-1], known))
    return {"field": ".".join(place) or "the whole file", "why": why}


def store_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Path:
    """Write `settings` durably, mode 0600 in a folder 0700; returns the file. Errors: StorageError; ConfigError for
    what `load_settings` would refuse: much of it is what another machine said.
    """
    path = settings_file(environ)
    text = settings.model_dump_json(indent=2, exclude_none=True) + "\n"
    try:
        Settings.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError("settings.not-stored", path=path, **_first_mistake(error)) from error
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(path, text.encode(), mode=0o600)
    return path


def parse_remote(
    text: str, *, environ: Mapping[str, str] = os.environ, settings: Settings | None = None, folder: Path | None = None
) -> Remote:
    """The remote that a user means by `[user@]host:path`, a local path, or "" (what `setup` stored).

    `SYNC_CLUSTER_USER` and `SYNC_CLUSTER_HOST` take the place of user and host, never of a local path. For "" also
    `SYNC_CLUSTER_PATH` counts, and host and path together need no stored remote. What `setup` stored for the same host
    (port, key, command) is used where `text` names that host too. `settings` None: read from the file; `folder`: what
    relative local paths are relative to. Errors: ConfigError.
    """
    known = (settings if settings is not None else load_settings(environ)).remote
    if not text.isprintable():
        raise ConfigError("remote.control-characters", remote=text)
    values: dict[str, object] = {"known_hosts": known_hosts_file(environ)}
    if text:
        user, host, path = _split(text)
        if host is None:
            mounted = os.path.abspath(os.path.join(folder or Path.cwd(), user_path(path)))
            return _remote(text, {"path": mounted})
        values |= {"user": user, "host": host, "path": path}
        if known is not None and known.host == host and user in {None, known.user}:
            values = {**known.model_dump(), "path": path}
    elif known is not None:
        values = known.model_dump()
        if known.is_local:
            return known
    fields = ((USER_VARIABLE, "user"), (HOST_VARIABLE, "host"), *([] if text else [(PATH_VARIABLE, "path")]))
    said = {field: environ[variable] for variable, field in fields if environ.get(variable)}
    if "path" in said:
        said["path"] = _split(f"{PATH_VARIABLE}:{said['path']}")[2]
    values |= said
    if not (values.get("host") and values.get("path")):
        raise ConfigError("remote.none")
    variables = " ".join(variable for variable, field in fields if field in said)
    return _remote(text or variables, values)


def _split(text: str) -> tuple[str | None, str | None, str]:
    """(user, host, path). scp's rule: a colon before the first slash makes it remote. Errors: ConfigError."""
    if "://" in text:
        raise ConfigError("remote.is-url", remote=text)
    bracketed = re.fullmatch(r"(?:(?P<user>[^/\[\]]*)@)?\[(?P<host>[^\]/]+)\]:(?P<path>.*)", text, re.DOTALL)
    if bracketed:
        user, host, path = bracketed["user"], bracketed["host"], bracketed["path"]
    else:
        before, colon, path = text.partition(":")
        if not colon or "/" in before:
            return None, None, text
        user, at, host = before.rpartition("@")
        if not at:
            user = None
    if user == "" or not host or not path:
        raise ConfigError("remote.incomplete", remote=text)
    if path.startswith("~") and not path.startswith("~/"):
        raise ConfigError("remote.other-home", remote=text)
    path = path.removeprefix("~/").lstrip("/") or "." if path.startswith("~/") else path
    return user, host, path


def _remote(text: str, values: Mapping[str, object]) -> Remote:
    try:
        return Remote.model_validate(values)
    except ValidationError as error:
        raise ConfigError("remote.unusable", remote=text, **_first_mistake(error)) from error
