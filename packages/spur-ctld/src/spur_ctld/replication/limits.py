"""How much of everything one member accepts."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes.

    Attributes:
        command_bytes: one command.
        batch_commands, batch_bytes: one group commit.
        waiting, waiting_bytes: accepted but not yet applied; beyond it `Overloaded`.
        apply_entries, apply_seconds: applied in one turn of the event loop.
        segment_bytes: a log file that reaches it is followed by a new one.
        snapshot_entries, snapshot_bytes: applied since the last snapshot that cause a new one.
        keep_entries: kept behind a snapshot, so that a short absence needs none.
        catch_up_entries: kept at most for a member that is in touch but behind.
        free_bytes: below it commands are refused.
        free_recheck: seconds between looks while they are.
        free_lead_bytes: below it a leader hands over to a member that has more.
        inbox_bytes: messages of other members that wait for the next turn.
        outbox_messages, outbox_bytes: messages that wait for the stream to one member; more are dropped.
        snapshot_rate: bytes per second of a snapshot on its way to another member.
        forward_calls: calls to the leader at a time.
        compare_secs: between two comparisons with the other members.
    """

    command_bytes: int = 8 << 20
    batch_commands: int = 4096
    batch_bytes: int = 4 << 20
    waiting: int = 50_000
    waiting_bytes: int = 64 << 20
    apply_entries: int = 2000
    apply_seconds: float = 0.008
    segment_bytes: int = 16 << 20
    snapshot_entries: int = 50_000
    snapshot_bytes: int = 64 << 20
    keep_entries: int = 5000
    catch_up_entries: int = 100_000
    free_bytes: int = 64 << 20
    free_recheck: float = 1.0
    free_lead_bytes: int = 128 << 20
    inbox_bytes: int = 4 << 20
    outbox_messages: int = 4096
    outbox_bytes: int = 32 << 20
    snapshot_rate: int = 64 << 20
    forward_calls: int = 2
    compare_secs: float = 30.0
