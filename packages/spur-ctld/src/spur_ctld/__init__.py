"""The controller: a replicated state machine with a thin shell."""

__version__ = "0.1.0"
