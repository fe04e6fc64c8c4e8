"""Job history in SQL: the outbox of the replicated state on one side, `sacct` on the other.

The database is never in the way of scheduling.  Rows wait in the replicated outbox until the database
confirmed them; a database that is down, dies or comes back loses and doubles nothing.
"""
