"""A text that is too long for everything, and how much of it an error message repeats."""

import re

LENGTH = 5000
LONGEST_QUOTE = 80
LONG = "x" * LENGTH
REASON = re.compile(r"\(\d+\) ")  # where a message has several
QUOTE = re.compile(r"x{20,}")


def too_much(message: str) -> list[int]:
    """The lengths of what a message repeats of a long input, if that is more than 80 characters, or twice for one reason."""
    found = [[len(quote) for quote in QUOTE.findall(reason)] for reason in REASON.split(message)]
    return [sum(lengths) for lengths in found if len(lengths) > 1 or max(lengths, default=0) > LONGEST_QUOTE]
