"""Replay of a recorded workload on a described cluster, with the scheduler that the controller uses.

`replay` is as pure as the scheduler: events in, starts out, no clock.  Only `program` reads files and prints.
"""
