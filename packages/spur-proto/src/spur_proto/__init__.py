"""Wire contract of SPUR: generated protobuf and gRPC code."""

__version__ = "0.1.0"
