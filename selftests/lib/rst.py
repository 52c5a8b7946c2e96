# SPDX-License-Identifier: GPL-2.0
"""Tables of reStructuredText, and their places in the documentation."""

BEGIN, END = ".. The table of {} begins here.", ".. The table of {} ends here."


def simple_table(head, rows, left=(0, 1)):
    """A simple table of reStructuredText, easy to read as it is; `left` names the columns of words."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = " ".join("=" * width for width in widths)

    def line(row):
        # The first column of a row must not be empty, or it continues the row above.
        cells = [row[0] or "\\", *row[1:]]
        aligned = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths))
        ]
        return " ".join(aligned).rstrip()

    return [rule, line(head), rule, *map(line, rows), rule]


def put(document, name, lines):
    """Has the document show these lines in the place of the table with this name."""
    begin, end = BEGIN.format(name), END.format(name)
    before, begun, rest = document.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise SystemExit(f"{document} has no place for the table of {name}")
    document.write_text("\n".join([before + begin, "", *lines, "", end + after]))
