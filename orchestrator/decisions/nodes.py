"""Nodes on which jobs of this run died early: remembered for a while, and left out for a while. Pure.

A fault of the program must not close the cluster to it, so the memory decays, few nodes are left out at once, and one
slot alone accuses a node only if it has done well elsewhere.
"""

from __future__ import annotations

from orchestrator.decisions.models import BadNode, Death

#: A job that dies later than this after its start has shown that the node can run it.
EARLY_S = 600.0
#: Deaths further apart are not the same trouble.
WITHIN_S = 6 * 3600.0
#: Long enough for a site's health check or a restart; short enough that a mended node is used again the same day.
EXCLUDED_S = 2 * 3600.0
#: Small clusters have few nodes, and a program that dies everywhere would exclude them all.
NODES_AT_ONCE = 3
#: So many different slots that died there make a node bad.
SLOTS = 2
#: So many deaths of one slot do it too, if another node served that slot.
DEATHS_OF_ONE_SLOT = 3
#: A broken program with hundreds of slots dies hundreds of times: more than these tell nothing new.
DEATHS_KEPT = 50


def excluded(nodes: tuple[BadNode, ...], now: float) -> tuple[str, ...]:
    """The nodes that a submission must avoid now, by name."""
    return tuple(sorted(bad.node for bad in nodes if bad.excluded_until > now))


def decayed(nodes: tuple[BadNode, ...], now: float) -> tuple[BadNode, ...]:
    """Without what is too old to matter. A clock that was set back makes no exclusion longer than `EXCLUDED_S`."""
    kept = []
    for bad in nodes:
        deaths = tuple(death for death in bad.deaths if now - death.at < WITHIN_S)
        until = min(bad.excluded_until, now + EXCLUDED_S) if bad.excluded_until > now else 0.0
        if deaths or until:
            kept.append(BadNode(node=bad.node, deaths=deaths, excluded_until=until))
    return tuple(kept)


def with_death(nodes: tuple[BadNode, ...], node: str, death: Death) -> tuple[tuple[BadNode, ...], bool]:
    """The memory, and whether the node is left out now. What a program dies of on two nodes is its own fault."""
    before = next((bad for bad in nodes if bad.node == node), BadNode(node=node))
    bad = before.model_copy(update={"deaths": (*before.deaths[-DEATHS_KEPT:], death)})
    others = [one for one in nodes if one.node != node]
    common = {d.cause for d in bad.deaths} & {d.cause for one in others for d in one.deaths} - {""}
    enough = _is_enough(bad, common)
    begins = enough and bad.excluded_until <= death.at
    bad = bad.model_copy(update={"excluded_until": death.at + EXCLUDED_S if enough else 0.0})
    others = [one if _is_enough(one, common) else one.model_copy(update={"excluded_until": 0.0}) for one in others]
    out = sorted((one for one in others if one.excluded_until > death.at), key=lambda one: one.excluded_until)
    oldest = out[0].node if enough and len(out) >= NODES_AT_ONCE else None
    others = [one.model_copy(update={"excluded_until": 0.0}) if one.node == oldest else one for one in others]
    return (*others, bad), begins


def without(nodes: tuple[BadNode, ...], cause: str) -> tuple[BadNode, ...]:
    """Without the deaths of `cause`, which has turned out to be no node's fault, and the exclusions that they made."""
    kept = []
    for bad in nodes:
        deaths = tuple(death for death in bad.deaths if not cause or death.cause != cause)
        if len(deaths) == len(bad.deaths):
            kept.append(bad)
        elif deaths:
            until = bad.excluded_until if _is_enough(bad.model_copy(update={"deaths": deaths}), set()) else 0.0
            kept.append(BadNode(node=bad.node, deaths=deaths, excluded_until=until))
    return tuple(kept)


def _is_enough(bad: BadNode, common: set[str]) -> bool:
    """Whether its deaths make it a bad node. `common`: causes that other nodes have seen, too."""
    counted = [death for death in bad.deaths if death.served_elsewhere or death.cause not in common]
    if len({death.slot for death in counted}) >= SLOTS:
        return True
    slots = [death.slot for death in counted]
    return any(slots.count(death.slot) >= DEATHS_OF_ONE_SLOT for death in counted if death.served_elsewhere)
