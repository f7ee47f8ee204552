"""Whole numbers that users write."""


def whole(text: str) -> int | None:
    """Returns the number that decimal digits spell; None if there are none, or other characters, or more than 18.

    No count, step or line has so many, and Python refuses to read thousands.
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None
