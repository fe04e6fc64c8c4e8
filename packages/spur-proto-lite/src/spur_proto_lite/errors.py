"""What can be wrong with something another process said or left on disk."""

from spur_core.errors import RequestError, StateError


class BadDocument(RequestError):
    """A message or a file does not have the shape it must have; the text names the field."""

    code = "bad_document"


class NewerFormat(BadDocument):
    """The document says a format number above ours.  Nobody may guess what it means."""

    code = "newer_format"


class CorruptJournal(StateError):
    """A journal is damaged in the middle, or its sequence numbers do not run on."""

    code = "corrupt_journal"
