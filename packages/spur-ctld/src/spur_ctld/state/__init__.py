"""The replicated state: records, operations and the pure function that applies one to the other."""
