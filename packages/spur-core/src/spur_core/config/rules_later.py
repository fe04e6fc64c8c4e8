"""Rules of sections whose features come in a later release; such a file is refused anyway, and completely."""

import ipaddress
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from spur_core.config.model import Config
from spur_core.config.schema import shown
from spur_core.errors import GrammarError


def check(config: Config) -> list[str]:
    """Every problem of these sections."""
    rules = (memlock, submit_hooks, kubernetes, federation, topology)
    return [problem for rule in rules for problem in rule(config)]


def memlock(config: Config) -> Iterator[str]:
    """`unlimited` (also empty and 0), `inherit`, or bytes."""
    value = config.rlimits.memlock
    if value not in ("", "unlimited", "inherit") and not (value.isascii() and value.isdigit()):
        yield f'[rlimits] memlock = {shown(value)}: must be "unlimited", "inherit" or bytes'


def submit_hooks(config: Config) -> Iterator[str]:
    """A program that decides over every job must not be anybody's to change."""
    for name in ("job_submit", "job_submit_lua"):
        path: str = getattr(config.hooks, name)
        if path:
            why = _not_trusted(Path(path))
            if why:
                yield f"[hooks] {name} = {shown(path)}: {why}"


def _not_trusted(path: Path) -> str:
    try:
        found = path.stat()
    except OSError as error:
        return error.strerror or "cannot be read"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if not found.st_mode & stat.S_IXUSR:
        return "not executable"
    if found.st_uid not in (0, os.geteuid()):
        return "must belong to root or to the user that runs spurctld"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "must not be writable for group or others"
    return ""


def kubernetes(config: Config) -> Iterator[str]:
    """Checked only when the cluster is enabled."""
    section = config.cluster
    if not section.enabled:
        return
    if section.distro != "k0s":
        yield f'[cluster] distro = {shown(section.distro)}: must be "k0s"'
    if section.control_plane_replicas not in (1, 3, 5):
        yield f"[cluster] control_plane_replicas = {section.control_plane_replicas}: must be 1, 3 or 5"
    if section.k8s_provisioning_timeout_secs == 0:
        yield "[cluster] k8s_provisioning_timeout_secs = 0: must be above 0"
    where = section.local_path_dir
    if not where.startswith("/") or any(c in "'\"\\" or c.isspace() or not c.isprintable() for c in where):
        yield f"[cluster] local_path_dir = {shown(where)}: must be an absolute path without quotes and blanks"
    networks: list[tuple[str, ipaddress.IPv4Network]] = []
    for label, text in (
        ("[network] wg_cidr", config.network.wg_cidr),
        ("[cluster] pod_cidr", section.pod_cidr),
        ("[cluster] service_cidr", section.service_cidr),
    ):
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError:
            yield f"{label} = {shown(text)}: must be an IPv4 network"
            continue
        if label == "[cluster] pod_cidr" and network.prefixlen > 24:
            yield f"{label} = {shown(text)}: the prefix must be 24 or shorter"
        for other_label, other in networks:
            if network.overlaps(other):
                yield f"{label} = {shown(text)}: overlaps {other_label}"
        networks.append((label, network))


def federation(config: Config) -> Iterator[str]:
    """Peers need a scheme, so that nobody guesses one."""
    for peer in config.federation.clusters:
        if not peer.address.startswith(("http://", "https://")):
            yield (
                f"[[federation.clusters]] {shown(peer.name)} address = {shown(peer.address)}:"
                " must begin with http:// or https://"
            )


def topology(config: Config) -> Iterator[str]:
    """Children must exist, and nothing is below itself."""
    from spur_core.grammar.hostlist import expand

    found = config.topology
    if found.plugin == "tree" and not found.switches:
        yield '[topology] plugin = "tree": needs [[topology.switches]]'
    if found.plugin != "tree" and found.switches:
        yield f'[[topology.switches]] goes with plugin = "tree", not with {shown(found.plugin)}'
    if found.plugin != "block" and found.block_size is not None:
        yield (
            f'[topology] block_size = {found.block_size}: goes with plugin = "block",'
            f" not with {shown(found.plugin)}"
        )
    children: dict[str, list[str]] = {}
    leaf_of: dict[str, str] = {}
    above: dict[str, str] = {}
    for one in config.topology.switches:
        if one.name in children:
            yield f"[[topology.switches]] {shown(one.name)} is defined twice"
        if bool(one.nodes) == bool(one.switches):
            yield f"[[topology.switches]] {shown(one.name)} needs nodes or switches, one of the two"
        try:
            children[one.name] = expand(one.switches)
            for node in expand(one.nodes) if one.nodes != "ALL" else ():
                if leaf_of.setdefault(node, one.name) != one.name:
                    yield f"[[topology.switches]] {shown(one.name)}: {node} is on {leaf_of[node]} already"
        except GrammarError:
            children.setdefault(one.name, [])
    for name, below in children.items():
        for child in below:
            if child not in children:
                yield f"[[topology.switches]] {shown(name)} switches: there is no switch {shown(child)}"
            elif above.setdefault(child, name) != name:
                yield f"[[topology.switches]] {shown(name)}: {child} is below {above[child]} already"
        if _reaches(name, name, children):
            yield f"[[topology.switches]] {shown(name)} is below itself"


def _reaches(start: str, wanted: str, children: dict[str, list[str]]) -> bool:
    pending, visited = list(children[start]), set[str]()
    while pending:
        name = pending.pop()
        if name == wanted:
            return True
        if name not in visited:
            visited.add(name)
            pending.extend(children.get(name, ()))
    return False
