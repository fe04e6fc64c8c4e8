"""Rules that look at more than one key.  Each yields its problems; nothing stops at the first."""

from collections.abc import Callable, Iterator

from spur_core.config.address import split_address, with_port
from spur_core.config.model import Config
from spur_core.config.schema import shown
from spur_core.config.sections import PRIORITY_FLAGS, ControllerSection, GresEntry
from spur_core.errors import GrammarError

Rule = Callable[[Config], Iterator[str]]

#: Members of a group of controllers; more only make every write slower.
MOST_PEERS = 5
_DATABASES = ("sqlite+aiosqlite:///", "postgresql+asyncpg://")


def check(config: Config) -> list[str]:
    """Every problem of the whole."""
    return [problem for rule in RULES for problem in rule(config)]


def controllers(config: Config) -> Iterator[str]:
    """Hosts, members, ids."""
    section = config.controller
    port = split_address(section.listen_addr)[1]
    if not section.hosts:
        yield "[controller] hosts = []: name at least one controller"
    for host in section.hosts:
        try:
            with_port(host, port)
        except GrammarError as error:
            yield f"[controller] hosts: {error.text}"
    if len(set(section.peers)) != len(section.peers):
        yield "[controller] peers: a member is listed twice"
    if section.node_id is not None and not 1 <= section.node_id <= max(len(section.peers), 1):
        yield (
            f"[controller] node_id = {section.node_id}: must be the position of this controller in peers,"
            f" 1 to {max(len(section.peers), 1)}"
        )
    yield from _group(section)
    if section.first_job_id > section.max_job_id:
        yield (
            f"[controller] first_job_id = {section.first_job_id}:"
            f" must not be above max_job_id = {section.max_job_id}"
        )


def _group(section: ControllerSection) -> Iterator[str]:
    """Addresses of the members, which others must be able to reach."""
    count = len(section.peers)
    if count > MOST_PEERS:
        yield f"[controller] peers: names {count} controllers; name 1, 3 or 5"
    for name, addresses in (("peers", section.peers), ("client_addrs", section.client_addrs)):
        for address in addresses:
            if not all(split_address(address)):
                yield f"[controller] {name}: {shown(address)} cannot be reached; write HOST:PORT of one host"
    if count <= 1:
        defaults = ControllerSection()
        for name in ("raft_listen_addr", "raft_tls_dir"):
            given = getattr(section, name)
            if given != getattr(defaults, name):
                yield (
                    f"[controller] {name} = {shown(given)}: a single controller has no use for it;"
                    " leave it out, or name the members of the group in peers"
                )
    clients = section.client_addrs
    if len(set(clients)) != len(clients):
        yield "[controller] client_addrs: an address is listed twice"
    if clients and len(clients) != max(count, 1):
        yield (
            f"[controller] client_addrs: {len(clients)} addresses for {max(count, 1)} controller(s);"
            " give one for each of peers, in the same order"
        )


def retention(config: Config) -> Iterator[str]:
    """One key, two names."""
    kept, age = config.controller.terminal_job_retention_secs, config.scheduler.min_job_age_secs
    default = type(config.controller)().terminal_job_retention_secs
    if age is not None and kept not in (default, age):
        yield (
            f"[scheduler] min_job_age_secs = {age}: contradicts"
            f" [controller] terminal_job_retention_secs = {kept}; remove one"
        )


def heartbeat(config: Config) -> Iterator[str]:
    """A node must be able to report before it is declared down."""
    every, silence = config.agent.heartbeat_interval_secs, config.controller.heartbeat_timeout_secs
    if every >= silence:
        yield (
            f"[agent] heartbeat_interval_secs = {every}: must be below"
            f" [controller] heartbeat_timeout_secs = {silence}"
        )


def inactive(config: Config) -> Iterator[str]:
    """Clients report every 30 s, so less than two reports says nothing."""
    limit = config.scheduler.inactive_limit_secs
    if 0 < limit < 60:
        yield f"[scheduler] inactive_limit_secs = {limit}: must be 0 or at least 60"


def database(config: Config) -> Iterator[str]:
    """Only the two kinds that there are drivers for."""
    url = config.accounting.database_url
    if not url:
        return
    # The password in a URL must not reach a log, so only the scheme is shown.
    scheme = url.partition("://")[0]
    if not url.startswith(_DATABASES) or url in _DATABASES:
        yield (
            f"[accounting] database_url with scheme {shown(scheme)}: write sqlite+aiosqlite:///PATH or"
            " postgresql+asyncpg://USER@HOST/NAME"
        )


def credentials(config: Config) -> Iterator[str]:
    """Plugin, mode and key must fit each other."""
    auth = config.auth
    has_key = bool(auth.jwt_key or auth.jwt_key_file)
    if auth.jwt_key and auth.jwt_key_file:
        yield "[auth] jwt_key and jwt_key_file are both set; keep one"
    if auth.mode == "required" and auth.plugin == "none":
        yield '[auth] mode = "required" cannot work with plugin = "none"; use plugin = "jwt"'
    elif auth.mode == "required" and not has_key:
        yield '[auth] mode = "required" needs a key; make one with `spur keygen` and set jwt_key_file'


def agent_port(config: Config) -> Iterator[str]:
    """Two keys name the agent's port; they may not disagree."""
    defaults = (type(config.agent)().listen_addr, type(config.network)().agent_port)
    if config.agent.listen_addr == defaults[0] or config.network.agent_port == defaults[1]:
        return
    if split_address(config.agent.listen_addr)[1] != config.network.agent_port:
        yield (
            f"[network] agent_port = {config.network.agent_port}: contradicts"
            f" [agent] listen_addr = {shown(config.agent.listen_addr)}; remove one"
        )


def partitions(config: Config) -> Iterator[str]:
    """Names, defaults and limits of partitions."""
    names: set[str] = set()
    default: str | None = None
    for one in config.partitions:
        where = f"[[partitions]] {shown(one.name)}"
        if one.name and one.name in names:
            yield f"{where} is defined twice"
        names.add(one.name)
        if one.name == "DEFAULT":
            yield f"{where} is Slurm's word for what all partitions share; give it another name"
        if one.default and default is not None:
            yield f"{where} default = true: {shown(default)} is the default partition already"
        if one.default:
            default = one.name
        if one.max_nodes is not None and one.min_nodes > one.max_nodes:
            yield f"{where} min_nodes = {one.min_nodes}: must not be above max_nodes = {one.max_nodes}"
        if one.default_time is not None and one.max_time is not None and one.default_time > one.max_time:
            yield (
                f"{where} default_time of {one.default_time // 60} minutes:"
                f" must not be above max_time of {one.max_time // 60} minutes"
            )
        if one.def_mem_per_cpu and one.def_mem_per_node:
            yield f"{where} def_mem_per_cpu and def_mem_per_node are both set; keep one"
        if one.max_mem_per_node and one.def_mem_per_node and one.def_mem_per_node > one.max_mem_per_node:
            yield (
                f"{where} def_mem_per_node of {one.def_mem_per_node} MiB:"
                f" must not be above max_mem_per_node of {one.max_mem_per_node} MiB"
            )
        if one.alternate and (
            one.alternate == one.name or not any(p.name == one.alternate for p in config.partitions)
        ):
            yield f"{where} alternate = {shown(one.alternate)}: must be another partition"
        for kind in ("accounts", "qos"):
            if getattr(one, f"allow_{kind}") and getattr(one, f"deny_{kind}"):
                yield f"{where} allow_{kind} and deny_{kind} are both set, of which one would do; keep one"
        if one.grace_time and one.preempt_mode == "suspend":
            yield (
                f"{where} grace_time = {one.grace_time}: has no effect"
                f" with preempt_mode = {shown(one.preempt_mode)}; remove it"
            )


def priorities(config: Config) -> Iterator[str]:
    """Flags that have to wait, and what only a sum of factors looks at."""
    section = config.scheduler
    for name in section.priority_weight_tres:
        kind, _, licence = name.partition("/")
        if kind == "license" and licence not in config.licenses:
            where = "[scheduler] priority_weight_tres"
            yield f"{where}: there is no licence {shown(licence)}; list it in [licenses]"
    for flag in section.priority_flags:
        if why := PRIORITY_FLAGS[flag]:
            yield f"[scheduler] priority_flags: {flag} is not supported by this release ({why})"
    if section.priority_type == "multifactor":
        return
    only = 'has an effect with priority_type = "multifactor" only'
    defaults = type(section)()
    for name, default in vars(defaults).items():
        value = getattr(section, name)
        summed = name.startswith("priority_weight") or name in ("priority_favor_small", "priority_flags")
        if summed and value != default:
            yield f"[scheduler] {name} = {shown(value)}: {only}"
    for one in config.partitions:
        if one.priority_job_factor != 1:
            yield f"[[partitions]] {shown(one.name)} priority_job_factor = {one.priority_job_factor}: {only}"


def nodes(config: Config) -> Iterator[str]:
    """An entry must mean some node."""
    for at, one in enumerate(config.nodes):
        if not one.names and not one.selector:
            yield f"[[nodes]] #{at + 1} means no node: set names or selector"


def gres_entries(config: Config) -> Iterator[str]:
    """`[[devices.gres]]`: files and counts must agree."""
    from spur_core.grammar.hostlist import expand

    for one in config.devices.gres:
        where = f"[[devices.gres]] {shown(one.name)}"
        if "count_only" in one.flags and one.file:
            yield f"{where} file = {shown(one.file)}: cannot go with the flag count_only"
        if one.file:
            try:
                files = len(expand(one.file))
            except GrammarError:
                yield f"{where} file = {shown(one.file)}: not a list of files; example: /dev/nvidia[0-3]"
                continue
            if one.count and one.count != files:
                yield f"{where} count = {one.count}: file names {files} devices"
        yield from _places_of(one, where)


def _places_of(one: GresEntry, where: str) -> Iterator[str]:
    from spur_core.grammar import idlist
    from spur_core.grammar.hostlist import expand

    try:
        idlist.mask_of(one.cores)
    except GrammarError:
        yield f"{where} cores = {shown(one.cores)}: not a list of CPUs; example: 0-15,32-47"
    words = one.links.split(",") if one.links else []
    if not all(word.strip().removeprefix("-").isdecimal() and int(word) >= -1 for word in words):
        yield f"{where} links = {shown(one.links)}: not a list of numbers of links; example: -1,4,4,0"
    elif words and max(one.count, len(expand(one.file)) if one.file else 1) > 1:
        yield f"{where} links = {shown(one.links)}: an entry with links is one device; write one for each"


RULES: tuple[Rule, ...] = (
    controllers,
    retention,
    heartbeat,
    inactive,
    database,
    credentials,
    agent_port,
    partitions,
    priorities,
    nodes,
    gres_entries,
)
