# SPDX-License-Identifier: GPL-2.0
"""Reads the files, and says what is wrong if they cannot be read."""

import errno

from .mounts import read_mounts

DEBUGFS = "sys/kernel/debug/rpcrdma"
MODULE = "sys/module/rpcrdma"


class Unreadable(Exception):
    """There is nothing to show, for a reason that the user can do something about."""


class Values(dict):
    """The lines of one file, by name."""

    def __init__(self, path, pairs):
        super().__init__(pairs)
        self.path = path

    def number(self, name, default=0):
        """A value that has to be a number if it is there."""
        value = self.get(name, default)
        if isinstance(value, str):
            raise Unreadable(f"{self.path} is damaged: {name} is {value!a}")
        return value

    def word(self, name):
        """A value that has to be there."""
        if name not in self:
            raise Unreadable(f"{self.path} is damaged: it has no line for {name}")
        return str(self[name])


def number_or_text(word):
    """A value as the files write it: no number has more than 20 digits."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= 20 else word


def lines_of(path):
    """The lines of a file, each as its words."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except (IsADirectoryError, NotADirectoryError):
        raise Unreadable(f"{path} is damaged: it is no file") from None
    return [line.split() for line in text.splitlines()]


def damaged(path, line):
    """A line that is none of this file's."""
    return Unreadable(f"{path} is damaged: it has the line {' '.join(line)[:60]!a}")


def read_values(path):
    """A file with one "name value" a line."""
    pairs = []
    for line in lines_of(path):
        if len(line) != 2:
            raise damaged(path, line)
        pairs.append((line[0], number_or_text(line[1])))
    return Values(path, pairs)


def read_stats(path):
    """A file of counters."""
    stats = read_values(path)
    for name in stats:
        stats.number(name)
    return stats


def read_latency(path, words):
    """RPCs by the limit of their latency in nanoseconds, by so many words: form of Call and Reply, or step."""
    forms = {}
    for line in lines_of(path):
        limit, count = map(number_or_text, line[-2:]) if len(line) == words + 2 else ("", "")
        limit = None if limit == "inf" else limit
        if isinstance(limit, str) or isinstance(count, str):
            raise damaged(path, line)
        forms.setdefault(tuple(line[:words]), {})[limit] = count
    return forms


def has_debugfs(root):
    """Whether debugfs is mounted where it belongs; a copy has no such mount, but the folder."""
    try:
        lines = (root / "proc/self/mounts").read_bytes().split(b"\n")
    except OSError:
        return True
    return any(line.split(b" ")[1:3] == [b"/sys/kernel/debug", b"debugfs"] for line in lines)


def why_missing(root):
    """What it means that the module's folder is missing. `None`: that nothing is mounted or exported."""
    module = root / MODULE
    if not (root / "sys/module").is_dir():
        return f"{root / DEBUGFS} is missing"
    if not module.is_dir():
        return "the module rpcrdma is not loaded: nothing is mounted or exported over RDMA"
    if not (module / "version").exists():
        return "the kernel's own module rpcrdma is loaded, which has no such files: see modinfo rpcrdma"
    if not has_debugfs(root):
        return "debugfs is not mounted: mount -t debugfs none /sys/kernel/debug, which debugfs=off forbids"
    return None


def no_permission(root):
    """Why files that are there cannot be opened."""
    try:
        lockdown = (root / "sys/kernel/security/lockdown").read_text()
    except OSError:
        lockdown = "[none]"
    if "[none]" in lockdown:
        return f"{root / DEBUGFS} can be read by root only"
    return f"the kernel is locked down, and lets nobody read {root / DEBUGFS}: see /sys/kernel/security/lockdown"


def numbered(names, prefix, wanted=()):
    """The numbers of the folders with this prefix; if any are wanted, only those."""
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    numbers = sorted(int(number) for number in numbers if number.isascii() and number.isdecimal() and len(number) < 20)
    return [number for number in numbers if not wanted or number in wanted]


def read_each(root, prefix, numbers, read):
    """What `read` makes of each folder, by its number. A folder may go while it is read, and is left out then."""
    found = {}
    for number in numbers:
        try:
            found[number] = read(root / DEBUGFS / f"{prefix}{number}")
        except OSError as error:
            # A file that goes before it is opened is not found; debugfs has other errors for one that goes later.
            if error.errno not in (errno.ENOENT, errno.EIO, errno.ENXIO, errno.ENODEV):
                raise
    return found


def read_all(root, wanted):
    """All that there is; of the wanted transports only those.

    Raises Unreadable if the files cannot be read, or a wanted transport is not there.
    """
    try:
        return read_folders(root, wanted)
    except PermissionError:
        raise Unreadable(no_permission(root)) from None
    except OSError as error:
        raise Unreadable(f"{error.filename}: {error.strerror}") from None


def read_folders(root, wanted):
    """Does the work of read_all."""
    try:
        names = [path.name for path in (root / DEBUGFS).iterdir()]
    except FileNotFoundError:
        why = why_missing(root)
        if why:
            raise Unreadable(why) from None
        names = []
    by_number, by_address = read_mounts(root)

    def transport(path):
        connection = read_values(path / "connection")
        mounts = by_number.get(int(path.name)) or by_address.get(connection.word("peer"), [])
        return {"connection": connection, "stats": read_stats(path / "stats"),
                "latency": read_latency(path / "latency", 2), "mounts": mounts}

    def listener(path):
        return {"listener": read_values(path / "listener")}

    def served(path):
        return {"connection": read_values(path / "connection"), "stats": read_stats(path / "stats"),
                "latency": read_latency(path / "latency", 1)}

    look = {"transports": read_each(root, "", numbered(names, "", wanted), transport),
            "listeners": {}, "connections": {}}
    for number in wanted:
        if number not in look["transports"]:
            raise Unreadable(f"there is no transport {number}")
    if not wanted:
        look["listeners"] = read_each(root, "listener-", numbered(names, "listener-"), listener)
        look["connections"] = read_each(root, "connection-", numbered(names, "connection-"), served)
    return look


def module_version(root):
    """The version of the module that is loaded, or `None`."""
    try:
        return (root / MODULE / "version").read_text(errors="replace").strip()
    except OSError:
        return None
