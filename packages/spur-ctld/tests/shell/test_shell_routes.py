"""Every call of every service has a route and takes known kinds of token."""

from spur_ctld.api.caller import KINDS
from spur_ctld.api.routing import ROUTES, Route
from spur_proto import accounting_pb2, controller_pb2


def test_every_call_has_a_row_in_both_tables():
    known = {
        f"/{service.full_name}/{method.name}"
        for module in (controller_pb2, accounting_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(ROUTES) == known
    assert set(KINDS) == known


def test_what_changes_anything_goes_to_the_leader():
    reading = {name.rpartition("/")[2] for name, route in ROUTES.items() if route is not Route.LEADER}
    assert reading == {
        "Ping",
        "Takeover",
        "GetJobs",
        "GetJobSteps",
        "GetNodes",
        "GetJobHistory",
        "GetPartitions",
        "GetConfig",
        "ListReservations",
        "GetLicenses",
        "GetTopology",
        "GetPriorities",
    }
