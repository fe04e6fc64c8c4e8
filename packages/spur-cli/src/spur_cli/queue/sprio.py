"""sprio: what the priorities of waiting jobs are made of."""

from typing import TYPE_CHECKING

from spur_cli import formats
from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.options.engine import OPTIONAL, REQUIRED, Option, Parsed, Table
from spur_cli.options.front import cluster_option, common, open_options
from spur_core.errors import ConfigError

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import controller_pb2

NOBODY = "Unable to find jobs matching user/id(s) specified"


def table() -> Table:
    """The options of sprio."""
    return Table(
        [
            Option("noheader", "h", help="no header line"),
            Option("jobs", "j", OPTIONAL, "these jobs", metavar="IDS"),
            Option("long", "l", help="all columns"),
            Option("norm", "n", help="factors from 0 to 1, without their weights"),
            Option(
                "format",
                "o",
                REQUIRED,
                "columns by letter",
                metavar="FORMAT",
                raw=True,
                env=("SPRIO_FORMAT",),
            ),
            Option("sort", "S", REQUIRED, "order by these letters", metavar="LETTERS"),
            Option("partition", "p", REQUIRED, "in these partitions", metavar="LIST"),
            Option("user", "u", REQUIRED, "of these users", metavar="LIST"),
            Option("weights", "w", help="the weights instead of jobs"),
            Option("helpformat", "", help="print the letters of -o"),
            Option("federation", "", idle="one cluster", env=("SPRIO_FEDERATION",)),
            Option("local", "", idle="one cluster", env=("SPRIO_LOCAL",)),
            Option("sibling", "", idle="one cluster", env=("SPRIO_SIBLING",)),
            cluster_option(),
            *common(help_short=""),
        ],
        synonyms={"users": "user", "partitions": "partition"},
    )


def run(ctx: Context) -> int:
    """The command."""
    options = open_options(ctx, table())
    from spur_cli.queue import sprio_fields as fields

    if options.has("helpformat"):
        letters = sorted(fields.LETTERS, key=lambda letter: (letter.lower(), letter.isupper()))
        ctx.out("".join(f"%{letter} {fields.header(letter)}\n" for letter in letters))
        return 0
    ids = _ids(ctx, options)
    sort = options.get("sort") or "i"
    try:
        fields.sort([], sort)
    except ValueError as error:
        raise ctx.stop(f"Invalid sort specification: {error}") from None
    from spur_cli.submit.sbatch import cluster_name
    from spur_cli.transport import Transport

    try:
        transport = Transport(ctx, options.get("controller"))
        cluster = cluster_name(ctx, transport, options.get("clusters"))
        rows, weights = _fetch(transport, ids, options)
    except ConfigError as error:
        raise ctx.fatal(error.text) from None
    except CallFailed as failure:
        raise Stop(
            1, f"sprio: error: Couldn't get priority factors from controller: {failure.text}"
        ) from None
    form = _format(ctx, options, weights)
    head = f"CLUSTER: {cluster}\n" if cluster else ""
    if not options.has("noheader"):
        head += formats.render(form, fields.header, ())
    if options.has("weights"):
        ctx.out(head + formats.render(form, lambda letter: fields.weight(letter, weights), ()))
        return 0
    fields.sort(rows, sort)
    line = formats.line_maker(form, fields.text, ())
    ctx.out(head + "".join([line(row) for row in rows]))
    if not rows and (ids or options.get("user")):
        ctx.err(NOBODY + "\n")
    return 0


def _fetch(
    transport: "Transport", ids: list[int], options: Parsed
) -> "tuple[list[controller_pb2.JobPriority], controller_pb2.PriorityFactors]":
    """All pages, and the weights."""
    from spur_proto import controller_pb2 as pb

    request = pb.GetPrioritiesRequest(
        job_ids=ids, users=options.items("user"), partitions=options.items("partition")
    )
    rows: list[pb.JobPriority] = []
    while True:
        page = transport.call("GetPriorities", request, pb.GetPrioritiesResponse)
        rows.extend(page.jobs)
        if not page.next_page_token or options.has("weights"):
            return rows, page.weights
        request.page_token = page.next_page_token


def _ids(ctx: Context, options: Parsed) -> list[int]:
    """The jobs of `-j`, which also takes them as a word of its own.

    Raises:
        Stop: a word that is no id, or that nothing takes.
    """
    bare = options.has("jobs") and not options.get("jobs")
    extra = options.operands[1:] if bare else options.operands
    if extra:
        raise Stop(
            1,
            f"sprio: error: Unrecognized option: {extra[0]}",
            'Try "sprio --help" for more information',
        )
    if not options.has("jobs"):
        return []
    from spur_cli.queue import select

    try:
        refs = select.parse_refs([options.get("jobs") or ""] if not bare else options.operands)
    except ValueError as error:
        raise ctx.stop(f"Invalid job id: {error}") from None
    return [ref.job_id for ref in refs]


def _format(ctx: Context, options: Parsed, weights: "controller_pb2.PriorityFactors") -> formats.Format:
    from spur_cli.queue import sprio_fields as fields

    wanted = options.get("format")
    if not wanted:
        wanted = fields.default_format(weights, long=options.has("long"), norm=options.has("norm"))
    form = formats.parse_letters(wanted, fields.LETTERS)
    for letter in form.unknown:
        ctx.error(f"Invalid job format specification: {letter}")
    return form
