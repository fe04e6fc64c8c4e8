"""Local protocol of SPUR: session files, control requests, notifications, framing."""

__version__ = "0.1.0"
