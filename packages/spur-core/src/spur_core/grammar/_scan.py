"""What every scanner here needs: numbers, strictly."""


def digits(text: str, most: int = 18) -> int | None:
    """The number that `text` writes in plain ASCII digits, at most `most` of them; else None.

    Python's own `int` also takes signs, blanks, underscores and foreign digits, and refuses very long
    texts with an error of its own.
    """
    if 0 < len(text) <= most and text.isascii() and text.isdigit():
        return int(text)
    return None
