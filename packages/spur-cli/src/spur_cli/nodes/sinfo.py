"""sinfo: partitions and nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.formats import Cell, Format
from spur_cli.options.engine import OPTIONAL, REQUIRED, Option, Parsed, Table
from spur_cli.options.front import cluster_option, common, open_options
from spur_core.errors import ConfigError, GrammarError

if TYPE_CHECKING:
    from spur_cli.nodes.fields import Column, Entry
    from spur_proto import common_pb2

    Node = common_pb2.NodeInfo
    Partition = common_pb2.PartitionInfo

#: Built-in layouts: "name:[.]width", `#` in front of the width: widens to the longest value.
DEFAULT = "partition:#9 available:.5 time:.10 nodes:.6 statecompact:.6 nodelist"
LONG = (
    "partition:#9 available:.5 time:.10 size:.10 root:.4 oversubscribe:.8 groups:.10 nodes:.6 statelong:.11"
    " reservation:.11 nodelist"
)
SUMMARY = "partition:#9 available:.5 time:.10 nodeaiot:.16 nodelist"
NODES = "nodelist:#9 nodes:.6 partition:.#9 statecompact:6"
NODES_LONG = (
    "nodelist:#9 nodes:.6 partition:.#9 statelong:.11 cpus:4 socketcorethread:.8 memory:.6 disk:.8 weight:.6"
    " features:.8 reason:20"
)
REASONS = "reason:20 user:9 timestamp:19 nodelist"
REASONS_LONG = "reason:20 userlong:12 timestamp:19 statecompact:6 nodelist"


def table() -> Table:
    """The options of sinfo."""
    return Table(
        [
            Option("all", "a", help="also hidden partitions", env=("SINFO_ALL",)),
            Option("hide", "", idle="no partition is hidden"),
            Option("future", "F", idle="nodes of the future are never hidden", env=("SINFO_FUTURE",)),
            Option("dead", "d", help="only nodes that do not respond"),
            Option("responding", "r", help="only nodes that respond"),
            Option("exact", "e", help="do not put nodes of different sizes into one row"),
            Option("Format", "O", REQUIRED, "columns by name", metavar="NAMES", raw=True),
            Option("format", "o", REQUIRED, "columns by letter", metavar="FORMAT", raw=True),
            Option("iterate", "i", REQUIRED, "repeat every so many seconds", metavar="SECS"),
            Option("list-reasons", "R", help="why nodes are down or drained"),
            Option("long", "l", help="more columns"),
            Option("Node", "N", help="one row per node and partition"),
            Option("nodes", "n", REQUIRED, "only these nodes", metavar="HOSTS"),
            Option("noheader", "h", help="no header line"),
            Option("noconvert", "", idle="sizes are printed in MB"),
            Option("partition", "p", REQUIRED, "only these", metavar="LIST", env=("SINFO_PARTITION",)),
            Option("reservation", "T", help="the reservations"),
            Option("sort", "S", REQUIRED, "order by these letters", metavar="LETTERS", env=("SINFO_SORT",)),
            Option("states", "t", REQUIRED, "only nodes in these states", metavar="LIST"),
            Option("summarize", "s", help="one row per partition"),
            Option("helpstate", "", help="print the states"),
            Option("helpformat", "", help="print the letters of -o"),
            Option("helpFormat", "", help="print the names of -O"),
            Option("federation", "", idle="one cluster"),
            Option("local", "", idle="one cluster"),
            Option("json", "", OPTIONAL, "everything as JSON", metavar="PARSER"),
            Option("yaml", "", OPTIONAL, "everything as YAML", metavar="PARSER"),
            cluster_option(),
            *common(help_short=""),
        ],
        synonyms={"node-oriented": "Node", "partitions": "partition"},
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    if options.operands:
        raise Stop(
            1,
            f"sinfo: error: Unrecognized option: {options.operands[0]}",
            'Try "sinfo --help" for more information',
        )
    if _lists(ctx, options):
        return 0
    plan = Plan(ctx, options)
    period = options.get("iterate")
    if period is None:
        return plan.once(0)
    if not (period.isdigit() and int(period) > 0):
        raise ctx.stop(f"Invalid iterate value: {period}")
    import time

    round_number = 1
    while plan.once(round_number) == 0:
        round_number += 1
        time.sleep(int(period))
    return 1


def _lists(ctx: Context, options: Parsed) -> bool:
    from spur_cli.nodes import fields, states

    if options.has("helpstate"):
        ctx.out("\n".join(word.upper() for word in states.FILTERS) + "\n")
    elif options.has("helpformat"):
        ctx.out("".join(f"%{letter} {column.header}\n" for letter, column in fields.BY_LETTER.items()))
    elif options.has("helpFormat"):
        ctx.out("\n".join(fields.BY_NAME) + "\n")
    elif options.has("reservation"):
        _reservations(ctx, options)
    else:
        return False
    return True


def _reservations(ctx: Context, options: Parsed) -> None:
    from spur_cli.control import show_reservation
    from spur_cli.submit.sbatch import cluster_name
    from spur_cli.transport import Transport

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster_name(ctx, transport, options.get("clusters"))
        show_reservation.table(ctx, transport, header=not options.has("noheader"))
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise Stop(1, f"slurm_load_reservations: {failure.text}") from None


def built_in(text: str) -> Format:
    """A layout of this module; widths that widen are marked by being negative."""
    cells: list[Cell] = []
    for item in text.split(" "):
        name, _, spec = item.partition(":")
        right = spec.startswith(".")
        digits = spec.lstrip(".#")
        width = int(digits) if digits else None
        if width is not None and "#" in spec:
            width = -width
        cells.append(Cell("" if not cells else " ", name, width, right))
    return Format(cells, "", [])


def widen(form: Format, columns: "dict[str, Column]", rows: "list[list[Entry]]") -> None:
    """Give the widening cells their width."""
    for cell in form.cells:
        if cell.width is not None and cell.width < 0:
            longest = max((len(columns[cell.key].text(row)) for row in rows), default=0)
            cell.width = max(-cell.width, longest)


class Plan:
    """One call's decisions, made before anybody is asked."""

    def __init__(self, ctx: Context, options: Parsed) -> None:
        self.ctx = ctx
        self.options = options
        self.style = ctx.env.get("SLURM_TIME_FORMAT", "")
        self.form_of_data = ""
        if options.has("json") or options.has("yaml"):
            from spur_cli.data import document

            self.form_of_data = document.wanted(ctx, options)
        self.form, self.columns = self._format()
        self.test = self._states()
        self.hosts = self._hosts()

    def _format(self) -> "tuple[Format, dict[str, Column]]":
        from spur_cli.nodes import fields

        ctx, options = self.ctx, self.options
        if self.form_of_data:
            return built_in(DEFAULT), fields.BY_NAME
        by_name, by_letter = options.get("Format"), options.get("format")
        if by_name is not None and by_letter is not None:
            raise ctx.stop("-O (--Format) is incompatible with -o (--format)")
        if options.has("long") and (by_name is not None or by_letter is not None):
            raise ctx.stop("-l (--long) is incompatible with -o (--format)")
        plain = not any(options.has(name) for name in ("long", "Node", "summarize", "list-reasons"))
        if by_name is None and by_letter is None and plain:
            by_letter = ctx.env.get("SINFO_FORMAT") or None
        if by_name is not None:
            form = formats.parse_names(by_name, fields.BY_NAME)
            if form.unknown:
                raise ctx.stop(f"Invalid node format specification: {form.unknown[0]}")
            return form, fields.BY_NAME
        if by_letter is not None:
            if by_letter == "%all":
                by_letter = formats.every_letter(fields.BY_LETTER)
            form = formats.parse_letters(by_letter, fields.BY_LETTER)
            for letter in form.unknown:
                ctx.err(f"Invalid node format specification: {letter}\n")
            return form, fields.BY_LETTER
        long = options.has("long")
        if options.has("list-reasons"):
            layout = REASONS_LONG if long else REASONS
        elif options.has("Node"):
            layout = NODES_LONG if long else NODES
        elif options.has("summarize"):
            layout = SUMMARY
        else:
            layout = LONG if long else DEFAULT
        return built_in(layout), fields.BY_NAME

    def _states(self) -> "Callable[[Node], bool] | None":
        text = self.options.get("states")
        if text is None or text.lower() == "all":
            return None
        from spur_cli.nodes import states

        try:
            return states.parse_filter(text)
        except ValueError as error:
            listed = ", ".join(states.FILTERS)
            raise Stop(
                1, f'sinfo: error: Bad state string: "{error}"', f"sinfo: error: valid states: {listed}"
            ) from None

    def _hosts(self) -> set[str] | None:
        text = self.options.get("nodes")
        if text is None:
            return None
        from spur_core.grammar import hostlist

        try:
            return set(hostlist.expand(text))
        except GrammarError as error:
            raise self.ctx.stop(error.text.split("\n")[-1]) from None

    def once(self, round_number: int) -> int:
        """Ask and print."""
        from spur_cli.nodes import fetch
        from spur_cli.submit.sbatch import cluster_name
        from spur_cli.transport import Transport

        ctx, options = self.ctx, self.options
        try:
            transport = Transport(ctx, options.get("controller"))
            asked = options.get("clusters") or ("all" if self.form_of_data else None)
            cluster = cluster_name(ctx, transport, asked)
            partitions = fetch.all_partitions(transport)
            nodes = fetch.all_nodes(transport)
        except ConfigError as error:
            raise ctx.fatal(error.text) from None
        except CallFailed as failure:
            raise Stop(1, f"slurm_load_partitions: {failure.text}") from None
        rows = self.rows(self.entries(nodes, partitions))
        if self.form_of_data:
            self._data(rows, cluster)
            return 0
        widen(self.form, self.columns, rows)
        head = f"CLUSTER: {cluster}\n" if cluster else ""
        if options.has("long") or round_number:
            head += formats.date_line(ctx.clock())
        if not options.has("noheader"):
            head += formats.render(self.form, lambda key: self.columns[key].header, ())
        columns = self.columns
        lines = [
            formats.render(self.form, lambda key, row=row: columns[key].text(row), ())  # type: ignore[misc]
            for row in rows
        ]
        ctx.out(head + "".join(lines))
        return 0

    def _data(self, rows: "list[list[Entry]]", cluster: str) -> None:
        from spur_cli.data import document
        from spur_cli.data import sinfo as data

        tree = {"sinfo": [data.row_tree(row, cluster) for row in rows]}
        self.ctx.out(document.text(self.ctx, self.form_of_data, tree, cluster=cluster))

    def entries(self, nodes: "list[Node]", partitions: "list[Partition]") -> "list[Entry]":
        """Every node in every partition that the filters let through, in partition order."""
        from spur_cli.nodes.fields import Entry

        options = self.options
        wanted = set(options.items("partition")) if options.get("partition") else None
        by_name = {node.name: node for node in nodes}
        filtering = self.test is not None or self.hosts is not None or options.has("list-reasons")
        filtering = filtering or options.has("dead") or options.has("responding")
        out = []
        now = self.ctx.clock()
        for partition in partitions:
            if wanted is not None and partition.name not in wanted:
                continue
            members = [by_name[name] for name in partition.node_names if name in by_name]
            kept = [Entry(node, partition, self.style, now) for node in members if self._wanted(node)]
            if not members and not filtering and not options.has("Node"):
                kept = [Entry(None, partition, self.style, now)]
            out.extend(kept)
        return out

    def _wanted(self, node: "Node") -> bool:
        from spur_core.states import NodeBase, NodeFlag

        options = self.options
        silent = bool(node.flags & NodeFlag.NOT_RESPONDING)
        if options.has("dead") and not silent:
            return False
        if options.has("responding") and silent:
            return False
        if options.has("list-reasons"):
            bad = node.flags & (NodeFlag.DRAIN | NodeFlag.FAIL) or int(node.base) == NodeBase.DOWN
            if not node.reason or not bad:
                return False
        if self.hosts is not None and node.name not in self.hosts:
            return False
        return self.test is None or self.test(node)

    def rows(self, entries: "list[Entry]") -> "list[list[Entry]]":
        """Entries grouped to rows and sorted."""
        from spur_cli.nodes import fields, states
        from spur_core.grammar import hostlist

        exact = self.options.has("exact")
        by_node = self.options.has("Node")
        used = [self.columns[cell.key] for cell in self.form.cells]
        groups: dict[object, dict[str, Entry]] = {}
        for entry in entries:
            parts: list[object] = [column.key(entry, exact) for column in used]
            if by_node:
                parts.append(entry.node.name if entry.node is not None else "")
                parts.append(entry.partition.name if entry.partition is not None else "")
            # A node that is in several partitions counts once in a row that does not tell them apart.
            name = entry.node.name if entry.node is not None else ""
            groups.setdefault(tuple(parts), {}).setdefault(name, entry)
        rows = [list(row.values()) for row in groups.values()]
        order = {name: at for at, name in enumerate(_order_of(entries))}

        def natural(row: "list[Entry]") -> tuple[object, ...]:
            name = row[0].node.name if row[0].node is not None else ""
            return hostlist.natural_key(name)

        def default(row: "list[Entry]") -> tuple[int, int]:
            has_partition = any(cell.key in fields.PARTITION_KEYS for cell in self.form.cells)
            at = order[row[0].partition.name] if has_partition and row[0].partition is not None else 0
            return at, states.order(row[0].node) if row[0].node is not None else 99

        rows.sort(key=natural)
        if not by_node:
            rows.sort(key=default)
        spec = self.options.get("sort")
        if spec:
            self._sort(rows, spec, order)
        return rows

    def _sort(self, rows: "list[list[Entry]]", spec: str, order: dict[str, int]) -> None:
        from spur_cli.nodes import fields, states

        keys: list[tuple[Callable[[list[Entry]], object], bool]] = []
        descending = configured = False
        for char in spec:
            if char in "+-#, ":
                descending = (descending or char == "-") and char not in "+, "
                configured = (configured or char == "#") and char not in ", "
                continue
            column = fields.BY_LETTER.get(char)
            if column is None:
                raise self.ctx.stop(f"Invalid sort specification: {spec}")
            if char in "PR" and configured:
                keys.append((lambda row: order[row[0].partition.name] if row[0].partition else 0, descending))
            elif char in "tT":
                # Larger is what needs more attention, so the rank is turned round.
                keys.append((lambda row: -states.order(row[0].node) if row[0].node else -99, descending))
            elif column.kind in (fields.PLUS, fields.SPAN):
                keys.append((lambda row, c=column: _least(row, c), descending))  # type: ignore[misc]
            elif char == "D":
                keys.append((lambda row: len(row), descending))
            else:
                keys.append((lambda row, c=column: c.text(row), descending))  # type: ignore[misc]
            descending = configured = False
        for key, reverse in reversed(keys):
            rows.sort(key=key, reverse=reverse)  # type: ignore[arg-type]


def _least(row: "list[Entry]", column: "Column") -> float:
    return min((column.function(e.node) or 0 for e in row if e.node is not None), default=0)


def _order_of(entries: "list[Entry]") -> list[str]:
    names: list[str] = []
    for entry in entries:
        if entry.partition is not None and entry.partition.name not in names:
            names.append(entry.partition.name)
    return names
