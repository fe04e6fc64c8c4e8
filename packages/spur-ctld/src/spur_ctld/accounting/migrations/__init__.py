"""Numbered schema steps, run by alembic."""

#: The revision this release needs; a test compares it with the newest file in `versions/`.
HEAD = "0003"
