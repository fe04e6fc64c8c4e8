"""`spurd --emulate N`: many nodes in one program, to load a controller; no job's program ever runs.

Each virtual node registers, beats, takes launches and reports ends as an agent does.  A job does nothing but
last as long as the `sleep` in its script, so a node of a real cluster must not be one of these.
"""
