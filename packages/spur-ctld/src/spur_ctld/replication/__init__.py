"""The replicated, durable log of commands that the controller's state is built from.

Others import `api` (what they implement, call and catch) and `node.Node` (to start a member).
"""
