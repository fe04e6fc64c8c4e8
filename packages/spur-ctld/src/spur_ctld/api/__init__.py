"""The gRPC services: one gate, one error mapper, thin handlers."""
