"""The batch script's text and its first line.  Pure."""

from __future__ import annotations


def body(text: str) -> bytes:
    """The bytes of the spooled script: as submitted, but for a carriage return that ends the first line,
    which would become part of the interpreter's name."""
    raw = text.encode("utf-8", "surrogateescape")
    head, newline, rest = raw.partition(b"\n")
    if head.startswith(b"#!") and head.endswith(b"\r"):
        head = head[:-1]
    return head + newline + rest


def interpreter(raw: bytes) -> str:
    """The program that the first line names, "" without one."""
    head = raw.partition(b"\n")[0]
    words = head[2:].split() if head.startswith(b"#!") else []
    return words[0].decode("utf-8", "surrogateescape") if words else ""
