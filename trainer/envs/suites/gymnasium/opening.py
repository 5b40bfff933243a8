"""From an id to an environment, and in one sentence why there is none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

import gymnasium

from anchorleg.words import did_you_mean
from trainer.config.find import error_location
from trainer.errors import ConfigError

#: Namespaces of ids whose package registers them when it is imported, and the package's name.
_NAMESPACES = {"ALE": ("ale_py", "ale-py")}
#: What `gymnasium.make` takes beside what is the environment's own, and is not for a user to say.
_NOT_KWARGS = {
    "max_episode_steps": "env.horizon truncates episodes: set that, and leave this out",
    "disable_env_checker": "each step is checked anyway: leave it out",
}


@dataclass(frozen=True)
class Maker:
    """Makes one environment. `limit`: steps after which its spec cuts an episode; None: it says none."""

    id: str
    kwargs: Mapping[str, Any]
    limit: int | None
    _make: Callable[..., Any]

    def __call__(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """A new one. Errors: ConfigError."""
        kwargs = {**self.kwargs, **more}
        try:
            env = self._make(**kwargs)
        except (Exception, SystemExit) as error:  # it is not ours
            raise ConfigError("gym.not-made", id=self.id, kwargs=kwargs, why=error_location(error, __file__)) from error
        if not isinstance(env, gymnasium.Env):
            raise ConfigError("gym.no-env", id=self.id, kind=type(env).__name__)
        return env


def maker_of(env_id: str, kwargs: Mapping[str, Any]) -> Maker:
    """What makes the environment of an id. Its module is imported. Errors: ConfigError."""
    module, _, name = env_id.rpartition(":")
    if module:
        found = _imported(module, "install it or its dependencies into this Python")
    elif (namespace := _NAMESPACES.get(name.partition("/")[0])) is not None:
        _imported(namespace[0], f"pip install {namespace[1]}")
    spec = gymnasium.registry.get(name)
    if spec is not None:
        for field, why in _NOT_KWARGS.items():
            if field in kwargs:
                raise ConfigError("gym.kwarg", field=field, why=why)

        def made(**more: Any) -> Any:
            # Without a TimeLimit: the vector cuts episodes. Without the checker: every step is looked at here.
            return gymnasium.make(name, max_episode_steps=-1, disable_env_checker=True, **more)

        return Maker(env_id, kwargs, spec.max_episode_steps, made)
    if module and callable(called := getattr(found, name, None)):
        return Maker(env_id, kwargs, None, called)
    known = [*gymnasium.registry, *(vars(found) if module else ())]
    hint = did_you_mean(name, known, "gymnasium.pprint_registry() lists all")
    if module:
        raise ConfigError("gym.unknown-in-module", module=module, name=name, hint=hint)
    raise ConfigError("gym.unknown", name=name, hint=hint)


def space_of(env: gymnasium.Env[Any, Any], name: str, env_id: str) -> Any:
    """Its `action_space`, or its `observation_space`. Errors: ConfigError where it has none."""
    try:
        return getattr(env, name)
    except Exception as error:
        why = error_location(error, __file__)
        raise ConfigError("gym.space-missing", id=env_id, space=name, why=why) from error


def versions_of(env: gymnasium.Env[Any, Any], env_id: str) -> dict[str, str]:
    """Package → version, of all that decides what comes of an action."""
    core = env.unwrapped
    module = type(core).__module__
    found = {name: version(name) for name in ("gymnasium", "numpy")}
    if type(getattr(core, "data", None)).__name__ == "MjData":
        found["mujoco"] = version("mujoco")
    tops = {module.partition(".")[0], env_id.rpartition(":")[0].partition(".")[0]} - {"", "gymnasium"}
    for top in sorted(tops):
        for package in sorted(set(packages_distributions().get(top, ()))):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
    return found


def _imported(module: str, advice: str) -> Any:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        why = error_location(error, __file__)
        raise ConfigError("gym.not-imported", module=module, why=why, advice=advice) from error
