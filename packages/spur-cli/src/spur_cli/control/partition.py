"""`scontrol create | update | delete partition`: words to requests; the controller knows the keys."""

from spur_cli.cli_errors import CallFailed
from spur_cli.context import Context, Stop
from spur_cli.control.show import Connect


def about_one(words: list[str]) -> bool:
    """Whether `create`, `update` or `delete` is about one; a reservation may have a partition, too."""
    from spur_cli.control import reservation

    return is_partition(words[0]) and not any(reservation.is_reservation(word) for word in words)


def is_partition(word: str) -> bool:
    """Whether it names one: `partition`, `part`, `PartitionName=x`."""
    lower = word.partition("=")[0].lower()
    return len(lower) >= 3 and "partitionname".startswith(lower)


def create(ctx: Context, connect: Connect, words: list[str]) -> int:
    """`create PartitionName=NAME KEY=VALUE ...`; `words` follow `create`."""
    from spur_proto import controller_pb2 as pb

    name, rest = _subject(words)
    request = pb.CreatePartitionRequest(name=name)
    _put(request.changes, rest)
    try:
        connect().call("CreatePartition", request, pb.CreatePartitionResponse)
    except CallFailed as failure:
        raise Stop(1, f"Error creating the partition: {failure.text}") from None
    return 0


def update(ctx: Context, connect: Connect, words: list[str]) -> int:
    """`update PartitionName=NAME KEY=VALUE ...`; `words` follow `update`."""
    from spur_proto import controller_pb2 as pb

    name, rest = _subject(words)
    request = pb.UpdatePartitionRequest(name=name)
    _put(request.changes, rest)
    if not request.changes:
        raise Stop(1, "No changes specified")
    try:
        connect().call("UpdatePartition", request, pb.UpdatePartitionResponse)
    except CallFailed as failure:
        raise Stop(1, f"slurm_update error: {failure.text}") from None
    return 0


def delete(ctx: Context, connect: Connect, words: list[str]) -> int:
    """`delete PartitionName=NAME`; `words` follow `delete`."""
    from spur_proto import controller_pb2 as pb

    name, rest = _subject(words)
    if rest:
        raise ctx.stop(f"too many arguments for keyword:delete: {' '.join(rest)}")
    try:
        connect().call("DeletePartition", pb.DeletePartitionRequest(name=name), pb.DeletePartitionResponse)
    except CallFailed as failure:
        raise Stop(1, f"delete_partition {name}: {failure.text}") from None
    return 0


def _subject(words: list[str]) -> tuple[str, list[str]]:
    """The name and the other words of `PartitionName=NAME ...`, `partition NAME ...`, or of both."""
    rest = list(words)
    if "=" not in rest[0] and is_partition(rest[0]):
        rest = rest[1:]
        if rest and "=" not in rest[0]:
            return rest[0], rest[1:]
    for word in rest:
        if is_partition(word) and word.partition("=")[2]:
            return word.partition("=")[2], [other for other in rest if other is not word]
    raise Stop(1, "PartitionName must be given.  Request aborted")


def _put(changes: "object", words: list[str]) -> None:
    """Every word as a change.

    Raises:
        Stop: it is not KEY=VALUE.
    """
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key[-1:] in ("+", "-"):
            raise Stop(1, f"Update of this parameter is not supported: {word}", "Request aborted")
        changes.add(key=key, value=value)  # type: ignore[attr-defined]
