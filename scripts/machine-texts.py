#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Takes what tests run in their machines out of them, for shellcheck.

Usage: machine-texts.py FOLDER TEST...

Writes a script for each test, which has nothing but the texts that selftests/README.rst describes under "How a case
looks", each at the lines where the test has it. A text is in a subshell and begins with its parameters, so that
shellcheck warns of a variable that it lacks or takes from another text; what guest_add adds is there for all. Fails
if a text stands in double quotes, in which the test's own shell would expand it, or one of several lines in quotes.
"""

import os
import re
import sys

LIB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "selftests/lib")

# Where a command can begin, and what runs a text in a machine.
BEGIN = r"(?:^|(?<=[;&|({!])|(?<=\bdo)|(?<=\bthen)|(?<=\belse)|(?<=\bdefer)|(?<=[\d)]))[ \t]*"
HEAD = r"(?P<head>client|server|client_background \w+|server_rests|text_of|guest_add|\"?\$\w+\"?|\"\$\{[^}\n]*\}\")"
NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
VALUE = rf"(?:\"(?:[^\"\\$]|\\.|\${NESTED}|\$(?!\())*\"|\${NESTED}|[^\s\"']*)"
SPACE = r"(?:[ \t]|\\\n)+"
WORDS = rf"(?P<words>{SPACE}(?:[A-Za-z_]\w*={VALUE}{SPACE})*)"
CALL = re.compile(rf"{BEGIN}{HEAD}{WORDS}(?:<<-'(?P<end>\w+)'|'(?P<line>[^'\n]*)')", re.M)
DOUBLE = re.compile(rf"{BEGIN}(?:client|server|client_background \w+){WORDS}\"(?!\$(?:\w+|\{{@[^}}]*\}})\")", re.M)
LINES = re.compile(rf"{BEGIN}{HEAD}{WORDS}'[^'\n]*$", re.M)
HERE = re.compile(r"^(?![ \t]*#).*?(?P<begin><<-'(?P<end>\w+)').*\n(?P<text>(?:.*\n)*?)\t*(?P=end)$", re.M)


def script_of(test):
    """What one test runs in machines, and what is wrong with how that stands there, by lines."""
    heres = {match.start("begin"): match for match in HERE.finditer(test)}
    inside = [match.span("text") for match in heres.values()]
    lines = [""] * (test.count("\n") + 1)
    lines[:2] = ["# shellcheck shell=bash", "set -euo pipefail"]
    # Not guest.sh, of which all variables that have no capitals are of its functions.
    if "/lib/version.sh" in test:
        lines[1] += f"; . {LIB}/version-guest.sh"

    def matches(pattern):
        at = 0
        while match := pattern.search(test, at):
            at = match.end("head") if "head" in pattern.groupindex else match.end()
            if not any(begin <= match.start() < end for begin, end in inside):
                yield match

    def put(first, head, words, text):
        begin, end = ("{ :;", "}") if head == "guest_add" else ("(", ")")
        begin += "".join(f" {name}=$(parameter);" for name in re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", words))
        if len(text) == 1:
            lines[first] += f"{begin} {text[0]}; {end};"
        else:
            lines[first - 1] += begin
            lines[first : first + len(text) - 1] = text[:-1]
            lines[first + len(text) - 1] += end

    for call in matches(CALL):
        if call["end"]:
            here = heres.pop(call.end() - len(f"<<-'{call['end']}'"))
            put(test.count("\n", 0, here.start("text")), call["head"], call["words"], here["text"].split("\n"))
        else:
            put(test.count("\n", 0, call.end()), call["head"], call["words"], [call["line"]])
    # What is built on these has other arguments as well.
    for at, here in heres.items():
        words = test[test.rfind("\n", 0, at) + 1 : at]
        if "python" not in words:
            put(test.count("\n", 0, here.start("text")), "", words, here["text"].split("\n"))
    wrong = ((DOUBLE, "the text is in double quotes"), (LINES, "a text of several lines is in quotes"))
    return "\n".join(lines), [
        (test.count("\n", 0, match.end()) + 1, what) for pattern, what in wrong for match in matches(pattern)
    ]


def main(folder, *tests):
    wrong = 0
    for path in tests:
        with open(path, encoding="utf-8") as file:
            script, faults = script_of(file.read())
        for line, what in faults:
            print(f"{path}:{line}: {what}: see selftests/README.rst, How a case looks")
            wrong = 1
        to = os.path.join(folder, path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "w", encoding="utf-8") as file:
            file.write(script)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
