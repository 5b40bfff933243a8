"""What was found, before anybody judges it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from syncd.wire.protocol import Standing


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Error(_Frozen):
    """What an attempt ended with: the class of `syncd.errors`, its identifier, its sentence."""

    kind: str
    id: str = ""
    sentence: str


class HostKeyFacts(_Frozen):
    """`state`: known by this key; nothing known of the host; known by another key; behind a jump host; not asked."""

    state: Literal["known", "unknown", "changed", "hidden", "unasked"]
    fingerprint: str = ""
    sentence: str = ""


class Visit(_Frozen):
    """One connection by the transport that a client would choose. `error` None: the other side answered."""

    transport: str
    error: Error | None = None
    version: str | None = None
    clock_offset_s: float | None = None
    contributor: str | None = None
    standing: Standing | None = None
    policies: int = 0


class Space(_Frozen):
    """Room for one account's files: free bytes on the disk, and what its quota leaves (None: no such quota is told)."""

    free_bytes: int | None = None
    quota_left_bytes: int | None = None


class Side(_Frozen):
    """What one machine has."""

    space: Space = Space()
    filesystem: str = ""


class ServiceFacts(_Frozen):
    """The background service. `error`: its manager did not answer, and why."""

    manager: str = ""
    installed: bool = False
    running: bool = False
    detail: str = ""
    error: str = ""


class ClientFacts(_Frozen):
    """What the last client of the mirror said, and whether one runs. Ages in seconds."""

    runs: bool = False
    verb: str = ""
    state: str = ""
    age_s: float | None = None
    error: str = ""


class LaptopFacts(_Frozen):
    """All of it. `why_not`: transport → why it was not chosen. `open_paths`: what others may write to, and its mode."""

    settings_file: str
    stored: bool
    remote: str
    is_local: bool
    folder: str
    host_key: HostKeyFacts = HostKeyFacts(state="unasked")
    chosen: str
    wanted: str = "auto"
    why_not: dict[str, str] = {}
    visit: Visit | None = None
    here: Side = Side()
    there: Side | None = None
    there_error: str = ""
    open_paths: tuple[tuple[str, str], ...] = ()
    service: ServiceFacts = ServiceFacts()
    client: ClientFacts = ClientFacts()
