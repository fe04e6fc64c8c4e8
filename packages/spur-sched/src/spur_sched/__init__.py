"""The scheduler as a pure library."""

__version__ = "0.1.0"
