# SPDX-License-Identifier: GPL-2.0
"""Values as text, and text that fits."""

import re
import unicodedata

# The sign for text that was cut.
CUT = "~"
# Files of /proc escape what would end a word.
OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def safe(text):
    """The text with what a terminal could obey, or nobody could see, escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def unescaped(word):
    """A word of /proc/self/mountinfo, in bytes, as the path that it stands for."""
    path = OCTAL.sub(lambda found: bytes([int(found[1], 8)]), word)
    return path.decode(errors="backslashreplace")


def width(text):
    """The columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
               for letter in text)


def fit(text, columns):
    """The text, or its beginning and a sign that it was cut."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - len(CUT):
        text = text[:-1]
    return text + CUT


def pad(text, columns, is_right):
    """The text in a cell of a table."""
    space = " " * (columns - width(text))
    return space + text if is_right else text + space


def show_class(nanoseconds):
    """A class of latency by its limit, a power of two: 2^22 ns is 4 ms for people. `None` has no limit."""
    if nanoseconds is None:
        return ">17s"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"<{nanoseconds / size:.0f}{unit}"
    return f"<{nanoseconds}ns"


def show_age(milliseconds):
    """An age, in its best unit."""
    if milliseconds is None:
        return "-"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if milliseconds >= size:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds // 1000}s"


def show_megabytes(count):
    """Bytes in megabytes, in at most five columns below 100 GB."""
    megabytes = count / 1e6
    return f"{megabytes:.1f}" if 0 < megabytes < 9.95 else f"{megabytes:.0f}"
