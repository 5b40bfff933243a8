"""The background agent as text: what a service manager runs, as a LaunchAgent's plist and as a systemd user unit.

Escaping follows the two formats' own rules, so that any path that a person may have works: XML for the plist
(plist(5)); for the unit systemd.syntax(7) and systemd.service(5), "Command lines": double quotes with C escapes, `%%`
for a specifier's per cent, and the prefix `:` where a `$` must not be a variable (systemd 244).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from syncd.errors import ConfigError

#: One agent a user: a second `install` replaces the first.
LABEL = "org.anchorleg.syncd"
UNIT = "anchorleg-syncd.service"
#: launchd starts a crashed agent no sooner than this after its last start; its default of 10 s makes loops costly.
THROTTLE_S = 30
#: The owner's own work comes first.
NICE = 10
#: Of the installing shell's environment: what finds ssh and its helpers, and what finds and overrides our settings.
KEPT_ENVIRONMENT = ("PATH", "XDG_CONFIG_HOME", "SYNC_CLUSTER_USER", "SYNC_CLUSTER_HOST", "SYNC_CLUSTER_PATH")

_BY_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')
_PLACEHOLDER = re.compile(r"@\{([^{}]*)\}")


@dataclass(frozen=True)
class Agent:
    """What runs in the background: `watch REMOTE FOLDER` by `python`. Paths are absolute.

    `remote` is "" for the one that `setup` stored. `log` is where a LaunchAgent's output goes; systemd has its journal.
    """

    python: str
    remote: str
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> list[str]:
        """The command, word by word. `-P`: a folder `syncd` where it happens to start must not be imported."""
        return [self.python, "-P", "-m", "syncd", "run-agent", self.remote, str(self.folder)]


def plist_text(agent: Agent) -> str:
    """The property list of `agent`. Errors: ConfigError for a text that no property list can hold."""
    arguments = [f"        <string>{_xml(word)}</string>" for word in agent.program]
    variables = [
        f"        <key>{_xml(name)}</key>\n        <string>{_xml(value)}</string>"
        for name, value in sorted(agent.environment.items())
    ]
    return _render(
        "syncd.plist",
        {
            "label": LABEL,
            "program_arguments": "\n".join(arguments),
            "environment": "\n".join(variables),
            "throttle_s": str(THROTTLE_S),
            "nice": str(NICE),
            "log": _xml(str(agent.log)),
        },
    )


def unit_text(agent: Agent) -> str:
    """The systemd unit of `agent`. Errors: ConfigError for a text that no unit can hold."""
    # systemd (252: string_is_safe) takes no program whose path has quotes or backslashes; a shell's `exec` does.
    words = [*_BY_SHELL, *agent.program] if set(agent.python) & set("\"'\\") else agent.program
    # In the program's own path `$$` would stay as it is, so variables are turned off instead of escaped.
    without_variables = ":" if any("$" in word for word in words) else ""
    variables = [f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(agent.environment.items())]
    return _render(
        "syncd.service",
        {
            "exec_start": without_variables + " ".join(map(_quoted, words)),
            "environment": "\n".join(variables),
            "nice": str(NICE),
        },
    )


def _render(name: str, values: Mapping[str, str]) -> str:
    template = _template(name)
    used = set(_PLACEHOLDER.findall(template))
    if used != set(values):
        raise ValueError(f"{name}: placeholders and values differ: {', '.join(sorted(used ^ set(values)))}")
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _template(name: str) -> str:
    """A template that comes with the package: beside it in a wheel, in `templates/` of the tree otherwise."""
    package = Path(__file__).parents[1]
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise ConfigError("service.no-template", name=name)


def _writable(text: str) -> str:
    """`text` if both formats can hold it: no control characters, no bytes that are not UTF-8, no non-characters."""
    for char in text:
        if unicodedata.category(char) in {"Cc", "Cs"} or ord(char) & 0xFFFE == 0xFFFE:
            raise ConfigError("service.bad-character", text=text, character=char)
    return text


def _xml(text: str) -> str:
    return escape(_writable(text))


def _quoted(text: str) -> str:
    escaped = _writable(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
