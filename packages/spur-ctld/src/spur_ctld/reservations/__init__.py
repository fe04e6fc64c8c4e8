"""Reservations on the leader: from requests to records, and what becomes due with time."""
