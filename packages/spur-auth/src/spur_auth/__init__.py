"""Credentials: token kinds, minting, verification and the ownership rule."""

__version__ = "0.1.0"
