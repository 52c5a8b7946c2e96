# SPDX-License-Identifier: GPL-2.0
"""Tables that fit the width of the screen: columns of less importance are left out, and long texts cut."""

from .text import fit, pad, safe, width


class Column:
    """A column: its name, the cells, and what is done with it where there is no room.

    Those of rank 0 are always there, and the others, the lower ranks first, where these are not cut. A column with a
    `least` width is cut to it, with a sign.
    """

    def __init__(self, name, cells, rank=0, is_text=False, least=None):
        self.name = name
        self.cells = [safe(cell) for cell in cells]
        self.rank = rank
        self.is_text = is_text
        self.width = max(map(width, (name, *self.cells)))
        self.least = min(self.width, max(width(name), least)) if least else self.width


def choose(columns, room, gap):
    """The columns that are shown, cut as far as is needed."""
    shown = [column for column in columns if column.rank == 0]
    needed = sum(column.width for column in shown) + gap * (len(shown) - 1)
    for column in sorted((one for one in columns if one.rank), key=lambda one: one.rank):
        if needed + gap + column.least <= room:
            needed += gap + column.least
            shown.append(column)
    spare = max(0, room - gap * (len(shown) - 1) - sum(column.least for column in shown))
    for column in shown:
        more = min(spare, column.width - column.least)
        column.width = column.least + more
        spare -= more
    return [column for column in columns if column in shown]


def table(columns, room):
    """Lines of columns, the first one being their names. Texts begin at the left, numbers end at the right."""
    first = [column.width for column in columns if column.rank <= 1]
    gap = 2 if sum(first) + 2 * (len(first) - 1) <= room else 1
    columns = choose(columns, room, gap)
    for row in zip(*((column.name, *column.cells) for column in columns)):
        cells = (pad(fit(cell, column.width), column.width, not column.is_text) for column, cell in zip(columns, row))
        yield fit((" " * gap).join(cells).rstrip(), room)


def of_rows(names, rows, words, room):
    """A table of columns that are all shown; the first `words` are texts."""
    cells = zip(*rows)
    return table([Column(name, column, is_text=index < words)
                  for index, (name, column) in enumerate(zip(names, cells))], room)
