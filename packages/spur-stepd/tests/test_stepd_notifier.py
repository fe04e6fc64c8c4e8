"""The push of an exit to whoever listens on the agent's socket."""

import os
import socket
import threading

import pytest

from spur_core.ids import RuntimeId
from spur_proto_lite import exits, framing, notify, unixsock
from spur_stepd.loop import Loop
from spur_stepd.notifier import Notifier
from spur_stepd.privileges import Privileges


def ended(tasks):
    ends = tuple(exits.TaskExit(rank=rank, code=1, ended_at=1.5) for rank in range(tasks))
    record = exits.combine(ends, started_at=1.0, ended_at=2.0)
    return notify.Notification(rid=RuntimeId(1, 1, 0), seq=3, exit=record)


def serve(listener, heard):
    """One connection: the whole message, then "accepted"."""
    peer, _ = listener.accept()
    with peer:
        buffer = framing.MessageBuffer()
        while (message := buffer.take()) is None:
            buffer.feed(peer.recv(1 << 16))
        heard.append(notify.Notification.from_json(message))
        peer.sendall(framing.encode_message(notify.encode_answer(notify.ACCEPTED)))


@pytest.mark.parametrize("tasks", [1, 5000])
def test_a_push_arrives_whole(tmp_path, tasks):
    path = str(tmp_path / "notify.sock")
    with socket.socket(fileno=unixsock.bind(path)) as listener:
        heard, answers = [], []
        thread = threading.Thread(target=serve, args=(listener, heard))
        loop = Loop()
        notifier = Notifier(loop, path, Privileges(os.getuid(), os.getgid(), ()), answers.append)
        notifier.push(ended(tasks))
        thread.start()
        while not answers:
            loop.turn(10.0)
        thread.join()
    assert answers == [notify.ACCEPTED]
    assert heard == [ended(tasks)]


def test_nobody_listens(tmp_path):
    answers = []
    notifier = Notifier(
        Loop(), str(tmp_path / "no.sock"), Privileges(os.getuid(), os.getgid(), ()), answers.append
    )
    notifier.push(ended(1))
    assert answers == [None]
