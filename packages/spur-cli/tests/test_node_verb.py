"""`spur node drain`."""

import grpc
import pytest

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb


def test_nodes_are_drained_one_by_one(cli, peer, refuse):
    def update(request):
        if request.names == "n9":
            raise refuse(grpc.StatusCode.NOT_FOUND, "Invalid node name specified", "not_found")
        return pb.UpdateNodeResponse()

    running = [
        c.JobInfo(job_id=1, state=c.JOB_STATE_RUNNING, nodelist="n[1-2]"),
        c.JobInfo(job_id=2, state=c.JOB_STATE_RUNNING, nodelist="n1"),
    ]
    peer.answers.update(
        GetNodes=pb.GetNodesResponse(nodes=[c.NodeInfo(name=f"n{at}") for at in (1, 2, 3)]),
        GetJobs=pb.GetJobsResponse(jobs=running),
        UpdateNode=update,
    )
    said = (
        "Node n1 set to draining (2 running jobs will finish first)\n  reason: disk\n"
        "Node n2 set to draining (1 running job will finish first)\n  reason: disk\n"
        "Node n3 set to drain\n  reason: disk\n"
    )
    assert cli("spur", "node", "drain", "ALL", "--reason", "disk") == (0, "", said)
    told = peer.last("UpdateNode")
    assert (told.names, told.state, told.reason) == ("n3", "DRAIN", "disk")
    some = cli("spur", "node", "drain", "n[3,9]", "--reason=disk")
    assert some == (
        1,
        "",
        "Node n3 set to drain\n  reason: disk\n"
        "error: n9: Invalid node name specified\n"
        "failed on 1 of 2 node(s): n9\n",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "write `spur node drain NODES --reason TEXT`"),
        (["drain", "n1"], "--reason TEXT is needed"),
        (["label", "n1", "a=b"], "label is not supported by this release"),
        (["remove", "n1"], "remove is not supported by this release"),
    ],
)
def test_refusals(cli, words, text):
    assert cli("spur", "node", *words) == (1, "", f"spur node: error: {text}\n")
