# SPDX-License-Identifier: GPL-2.0
"""The command line."""

import argparse
import pathlib
import shutil
import sys
import time

from . import VERSION, __doc__ as description
from .export import as_json, as_metrics
from .read import Unreadable, read_all
from .report import write
from .screen import watch
from .trouble import CRITICAL, NAMES, check
from .view import render


def seconds(text):
    """An interval."""
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("from 0.1 to 3600")
    return value


def parse(words):
    """The options."""
    parser = argparse.ArgumentParser(prog="rpcrdma-top", description=description)
    parser.add_argument("xprt", nargs="*", type=int, help="only these transports, by their number")
    parser.add_argument("-d", "--details", action="store_true", help="all that is known, not one line each")
    parser.add_argument("-i", "--interval", type=seconds, metavar="SECONDS", help="between two looks, 1 if not given")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-o", "--once", action="store_true",
                      help="one look at what was counted since the mount; so too if the output is no terminal")
    what.add_argument("-j", "--json", action="store_true", help="one look in JSON; with -i a line for each look")
    what.add_argument("-p", "--prometheus", action="store_true", help="one look in the text format of Prometheus")
    what.add_argument("-c", "--check", action="store_true",
                      help="one line, and status 0, 1 for a warning, or 2 if something hangs or cannot be told")
    what.add_argument("-r", "--report", nargs="?", const="", metavar="FILE",
                      help="an archive for a bug report, in this folder if no file is given")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), metavar="DIR",
                        help="where a copy of /sys and /proc is")
    parser.add_argument("--version", action="version", version=f"rpcrdma-top {VERSION}")
    return parser.parse_args(words)


def print_json(read, root, interval):
    """Prints one look, or a line for each."""
    if not interval:
        print(as_json(read(), root, 2))
        return
    while True:
        print(as_json(read(), root, None), flush=True)
        time.sleep(interval)


def report(read, arguments):
    """Writes a report; where nothing can be read, that is what it has to say."""
    try:
        json = as_json(read(), arguments.root, 2)
    except Unreadable as error:
        json = str(error)
    path = write(arguments.root, arguments.report, json)
    print(f"{path}: addresses, mounts, settings and counters; look through it before you send it")


def run(arguments):
    """Does what the options say; returns the exit status."""
    def read():
        return read_all(arguments.root, arguments.xprt)

    if arguments.json:
        print_json(read, arguments.root, arguments.interval)
    elif arguments.report is not None:
        report(read, arguments)
    elif arguments.check:
        level, why = check(read())
        print(why)
        return level
    elif arguments.prometheus:
        print("\n".join(as_metrics(read(), arguments.root)))
    elif arguments.once or not sys.stdout.isatty():
        for line in render(read(), 0, shutil.get_terminal_size().columns, arguments.details):
            print(line)
    else:
        watch(read, arguments.interval or 1.0, arguments.details)
    return 0


def main(words=None):
    """The command; returns the exit status."""
    arguments = parse(words)
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run(arguments)
        sys.stdout.flush()
        return status
    except Unreadable as error:
        if arguments.check:
            print(f"{NAMES[CRITICAL]}: {error}")
            return CRITICAL
        if arguments.prometheus:
            print("\n".join(as_metrics(None, arguments.root)))
        print(f"rpcrdma-top: {error}", file=sys.stderr)
        return 0 if arguments.prometheus else 1
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read has enough; Python must not complain once more when it ends.
            sys.stdout = None
            return 0
        print(f"rpcrdma-top: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
