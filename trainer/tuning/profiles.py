"""Which of the kept measurements (`trainer autotune`, one file a name) belongs to this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anchorleg.words import counted
from trainer.errors import ConfigError
from trainer.machine.host import Host
from trainer.tuning.autotune import MachineRates, cache_file, is_of, read_facts, same_machine, versions_here

_GB = 2**30


@dataclass(frozen=True)
class Profile:
    """The name to go by (`advise` reads it again). `note`: one sentence for the user, or nothing."""

    name: str
    note: str = ""


def find_profile(user_id: str | None, host: Host) -> Profile:
    """The profile that `user_id` names; without one this machine's name's, else the newest that was measured here.

    One that is damaged, or of another machine, is named in the note and not used. Errors: ConfigError for an
    impossible name.
    """
    name = user_id or host.name
    path = cache_file(name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host):
        return Profile(name)
    other = _newest_of(path.parent, host) if user_id is None else None
    if other is not None:
        return Profile(other, f"going by the profile {other}, which `trainer autotune` measured on this machine")
    if why := why_not(path, facts, host):
        return Profile(name, f"{why}; it is not used: measure anew with `trainer autotune --user-id {name}`")
    if user_id is not None:
        return Profile(name, f"there is no profile {name} yet: `trainer autotune --user-id {name}` makes it")
    return Profile(name)


def why_not(path: Path, facts: MachineRates | None, host: Host) -> str:
    """Why what lies at `path` (`facts`, as it was read) cannot be used on `host`; "" where nothing is there."""
    if facts is None:
        return f"the profile {path} is damaged, or of another version of this program" if path.exists() else ""
    if is_of(facts, host):
        return ""
    if same_machine(facts.host, host):
        then, now = dict(facts.versions), versions_here()
        changed = ", ".join(name for name in now if then.get(name) != now[name])
        return f"the profile {path} was measured with other versions ({changed})"
    return f"the profile {path} was measured on a machine with {_words(facts.host)}, and this one has {_words(host)}"


def _words(host: Host) -> str:
    memory = "" if host.memory_bytes is None else f" and {host.memory_bytes / _GB:.1f} GB"
    return f"{counted(host.cores, 'core')}{memory}"


def _newest_of(folder: Path, host: Host) -> str | None:
    """The name of the newest profile in `folder` that was measured on a machine like `host`."""
    found = []
    for path in folder.glob("autotune-*.json"):
        name = path.stem.removeprefix("autotune-")
        try:
            facts = read_facts(cache_file(name))
        except ConfigError:  # nobody's name: not ours
            continue
        if facts is not None and is_of(facts, host):
            found.append((facts.measured_at, name))
    return max(found)[1] if found else None
