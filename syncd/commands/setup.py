"""`syncd setup`: from a new laptop to a working mirror, and the line for a friend's key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.output import say
from anchorleg.places import home_folder, short_path, user_path
from anchorleg.words import counted
from syncd.errors import ConfigError, HostKeyError, LoginRefusedError, RemoteError, SecondFactorError
from syncd.shared.layout import make_own_folder

if TYPE_CHECKING:
    from syncd.access.keys import Endpoint, OwnKey
    from syncd.remote import Remote, Settings

#: Wide enough for the longest step's name.
_STEP_WIDTH = 13


def setup(
    remote: Annotated[str, typer.Argument(help="[user@]host:path of a run folder or shared folder.")] = "",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="ssh port. Default: as in ~/.ssh/config.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key. Default: ~/.ssh/id_ed25519, made if missing.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Mirror on this machine. Default: ~/shared_weights.")] = None,
    remote_command: Annotated[
        str | None, typer.Option("--remote-command", help="Absolute path of syncd on the remote, if not found.")
    ] = None,
    yes_host_key: Annotated[
        str | None,
        typer.Option("--yes-host-key", metavar="FINGERPRINT", help="Host key (SHA256:xyz) to accept without asking."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Your name as a contributor. Default: account-machine.")] = None,
    friend: Annotated[str | None, typer.Option(help="Print the authorized_keys line for a friend.")] = None,
    friend_key: Annotated[Path | None, typer.Option("--friend-key", help="Their public key, a .pub file.")] = None,
    friend_checkpoints: Annotated[
        bool, typer.Option("--friend-checkpoints", help="Let them read whole checkpoints.")
    ] = False,
) -> None:
    """Connect this machine to a run.

    Checks the key, the host key, the login and syncd on the remote, and stores the connection. Without
    REMOTE, checks the stored remote, or the one in SYNC_CLUSTER_HOST and SYNC_CLUSTER_PATH. --friend alone only prints
    the line, for the stored remote.
    """
    from syncd.remote import load_settings

    settings = load_settings()
    if (friend is None) != (friend_key is None) or (friend_checkpoints and friend is None):
        raise ConfigError("friend.both")
    if remote or friend is None:
        settings = _connect(settings, remote, port, key, folder, remote_command, yes_host_key, name)
    if friend is not None and friend_key is not None:
        _print_friend(settings, friend, friend_key, checkpoints=friend_checkpoints)


def _connect(
    settings: Settings,
    text: str,
    port: int | None,
    key: Path | None,
    folder: Path | None,
    command: str | None,
    fingerprint: str | None,
    name: str | None,
) -> Settings:
    from syncd.access import keys
    from syncd.commands import default_name
    from syncd.remote import is_absolute_path, known_hosts_file, parse_remote, store_settings
    from syncd.shared.layout import NAME

    place = parse_remote(text, settings=settings)
    if place.is_local and not Path(place.path).exists():
        raise ConfigError("setup.no-remote", remote=text)
    if place.is_local:
        raise ConfigError("setup.is-local", remote=place)
    if name is not None and not NAME.fullmatch(name):
        raise ConfigError("name.unusable", name=name)
    if command is not None and not is_absolute_path(command):
        raise ConfigError("survey.relative-command", command=command)
    own = keys.ensure_key(user_path(key).absolute() if key else place.key or home_folder() / ".ssh" / "id_ed25519")
    _step("key", f"{short_path(own.path)} " + ("(new, without a passphrase)" if own.made else "(already there)"))
    changes = {"key": own.path, "port": port or place.port, "known_hosts": known_hosts_file()}
    place = place.model_copy(update=changes)
    where = keys.endpoint(place)
    _pin(where, known_hosts_file(), fingerprint)
    place, is_gated = _surveyed(place, where, own, command)
    wanted = name or settings.name or default_name()
    policies, who = _tried(place, wanted)
    if is_gated:
        wanted = who or wanted
    there = f"{counted(policies, 'policy is', 'policies are')} there" if policies else "no policy yet"
    _step("connection", f"works; your contributions are called {who or wanted}; {there}")
    changed: dict[str, object] = {"remote": place, "name": wanted}
    if folder:
        changed["folder"] = settings.mirror_at(folder)  # the next command may start elsewhere
    settings = settings.model_copy(update=changed)
    make_own_folder(settings.mirror_at(None))
    _step("stored", short_path(store_settings(settings)))
    mirror = short_path(settings.mirror_at(None))
    print(
        "\nNext:\n"
        f"  syncd pull      the newest policies to {mirror}, once\n"
        "  syncd watch     stay up to date, and send what your actors collect\n"
        "  syncd install   the same in the background, from now on\n"
        f"  trainer actors --shared-dir {mirror} --num-envs auto --contribute"
    )
    return settings


def _pin(where: Endpoint, file: Path, fingerprint: str | None) -> None:
    """Have the host's key pinned: a known one, or after a yes. Behind a jump host it must be known to ssh."""
    from syncd.access import keys

    known = keys.known_keys(where)
    if where.jump and known:
        _step("host key", f"{known[0].fingerprint} (known; reached through {where.jump})")
        return
    shown = keys.offered_key(where, known)
    if shown in known:
        keys.pin(where, shown, file)  # from now on ours is asked first, whichever file knew it
        _step("host key", f"{shown.fingerprint} (known)")
        return
    facts = {"kind": shown.kind, "host": where.pinned_name, "fingerprint": shown.fingerprint}
    if fingerprint is not None:
        if fingerprint != shown.fingerprint:
            raise HostKeyError("host.other-than-given", given=fingerprint, **facts)
    elif not _is_terminal():
        raise ConfigError("host.not-confirmed", **facts)
    else:
        print("\n  The {kind} key of {host} is\n  {fingerprint}\n  Compare it with the published one.".format(**facts))
        if input("  Is it correct? [y/N] ").strip().lower() not in {"y", "yes"}:
            raise HostKeyError("host.declined")
    keys.pin(where, shown, file)
    _step("host key", f"{shown.fingerprint} (pinned)")


def _surveyed(place: Remote, where: Endpoint, own: OwnKey, command: str | None) -> tuple[Remote, bool]:
    """The remote with its absolute folder and `syncd`, and whether our key only reaches a gate there."""
    from syncd.access import keys, survey
    from syncd.wire.protocol import REFUSED_PREFIX

    line = survey.question(place.path)
    try:
        answer = keys.ask_shell(place, line)
        _step("login", f"{where.user}@{where.host} accepts the key")
    except SecondFactorError:
        raise
    except LoginRefusedError:
        if why := keys.why_unusable(own, where):
            raise why from None
        if not _is_terminal():
            raise LoginRefusedError("login.key-unknown", account=f"{where.user}@{where.host}", key=own.path) from None
        print(f"\n  {where.user}@{where.host} does not know this key yet.\n  One login with your password installs it.")
        keys.install_public_key(place, own.public)
        try:
            answer = keys.ask_shell(place, line)
        except SecondFactorError:
            raise
        except LoginRefusedError:
            raise LoginRefusedError("login.still-refused", account=f"{where.user}@{where.host}") from None
        _step("login", f"{where.user}@{where.host} accepts the key now (the password was not stored)")
    if REFUSED_PREFIX in answer.stderr:
        _step("restricted", "this key reaches only the weights and its own inbox, as it should")
        return place.model_copy(update={"command": None}), True
    found = survey.findings(answer.stdout, place.path, command)
    if found.command is None:
        raise RemoteError("setup.no-syncd-there", **survey.how_to_install(place.account))
    _step(
        "folder", found.shared + ("" if found.has_policies else " (no policy yet: the run writes its first one there)")
    )
    _step("syncd there", found.command)
    return place.model_copy(update={"path": found.shared, "command": found.command}), False


def _tried(place: Remote, name: str) -> tuple[int, str | None]:
    """(policies on offer, how the other side calls us), over a real connection."""
    from syncd.transports.openssh import OpensshTransport

    transport = OpensshTransport(place, name)
    try:
        return transport.listing().policies, transport.facts().contributor
    finally:
        transport.close()


def _print_friend(settings: Settings, friend: str, file: Path, *, checkpoints: bool) -> None:
    from syncd.access import keys
    from syncd.access.gate import authorized_keys_line

    place = settings.remote
    if place is None or place.command is None:
        raise ConfigError("friend.no-remote")
    try:
        public = user_path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("friend.key-unreadable", path=file) from error
    if "PRIVATE KEY" in public:
        raise ConfigError("friend.key-private", path=file)
    line = authorized_keys_line(friend, public, [place.command], place.path, checkpoints=checkpoints)
    if keys.takes_variables(place):
        raise ConfigError("friend.open-sshd", host=place.host)
    advice = f"If the site allows shared keys, add this line to ~/.ssh/authorized_keys on {place.host}:"
    print(advice, file=sys.stderr)
    print(line)


def _step(name: str, words: str) -> None:
    mark = "✓" if _is_terminal() else "ok"
    say(f"{mark} {name:<{_STEP_WIDTH}} {words}")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
