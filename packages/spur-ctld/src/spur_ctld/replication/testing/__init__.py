"""Doubles of what the replicated log rests on, and a simulator of whole groups.  For tests only."""
