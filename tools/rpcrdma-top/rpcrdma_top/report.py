# SPDX-License-Identifier: GPL-2.0
"""One archive with all that "Reporting a bug" asks for. Unpacked, it is a copy that --root reads."""

import io
import os
import subprocess
import tarfile
import time

from . import VERSION
from .mounts import CLIENTS, MOUNTS, NFS, SWITCHES
from .read import DEBUGFS, MODULE

COMMANDS = (
    ("rdma-link", ("rdma", "link")),
    ("rdma-device", ("rdma", "dev")),
    ("rdma-resource", ("rdma", "resource", "show")),
    ("modinfo", ("modinfo", "rpcrdma")),
    ("kernel-log", ("dmesg", "--time-format", "iso")),
)
# Files that are read as they are, below the root.
FILES = ("etc/os-release", "proc/version", "proc/fs/nfsd/portlist", "sys/kernel/security/lockdown")
# Folders of which all files are read, and folders of which only names and links are.
FOLDERS = (DEBUGFS, MODULE, "proc/sys/sunrpc", "sys/module/rpcrdma/parameters")
LINKS = (NFS, CLIENTS, SWITCHES)
# Files of which only the lines with one of these words are: the others are no business of a report.
LINES = ((MOUNTS, (b" nfs ", b" nfs4 ")), ("proc/self/mounts", (b" nfs ", b" nfs4 ", b" debugfs ")))
LOG = (b"rpcrdma", b"svcrdma", b"xprtrdma", b"sunrpc", b"RPC:", b"nfs")


class Archive:
    """An archive that is being written. What cannot be read is there as the error."""

    def __init__(self, tar, folder):
        self.tar, self.folder = tar, folder

    def add(self, name, content):
        """A file."""
        self.info(name, tarfile.REGTYPE, size=len(content), content=io.BytesIO(content))

    def info(self, name, kind, size=0, target="", content=None):
        """A member of the archive."""
        info = tarfile.TarInfo(f"{self.folder}/{name}")
        info.type, info.size, info.linkname, info.mtime = kind, size, target, int(time.time())
        info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
        self.tar.addfile(info, content)

    def add_file(self, root, name, words=()):
        """A file of the machine, or its lines with one of these words."""
        try:
            content = (root / name).read_bytes()
        except OSError as error:
            return self.add(f"errors/{name.replace('/', '-')}", f"{error.strerror}\n".encode())
        self.add(name, lines_with(content, words))

    def add_folder(self, root, name):
        """All files of a folder that can be read."""
        for folder, _, files in os.walk(root / name):
            for file in sorted(files):
                path = os.path.relpath(os.path.join(folder, file), root)
                if os.access(root / path, os.R_OK) and not path.endswith("uevent"):
                    self.add_file(root, path)

    def add_links(self, root, name):
        """The folders and links of a folder."""
        for folder, folders, files in os.walk(root / name):
            for path in sorted(folders) + sorted(files):
                path = os.path.join(folder, path)
                member = os.path.relpath(path, root)
                if os.path.islink(path):
                    self.info(member, tarfile.SYMTYPE, target=os.readlink(path))
                elif os.path.isdir(path):
                    self.info(member, tarfile.DIRTYPE)

    def add_command(self, name, command):
        """What a command prints."""
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
            output = done.stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            output = f"{command[0]}: {error}\n".encode()
        self.add(f"commands/{name}", lines_with(output, LOG) if name == "kernel-log" else output)


def lines_with(content, words):
    """The lines with one of these words, or all."""
    if not words:
        return content
    return b"".join(line for line in content.splitlines(keepends=True) if any(word in line for word in words))


def write(root, path, json):
    """Writes the archive, which only its owner can read; returns its path."""
    now = time.strftime("%Y%m%d-%H%M%S")
    folder = f"rpcrdma-report-{os.uname().nodename}-{now}"
    path = path or f"{folder}.tar.gz"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file, \
            tarfile.open(fileobj=file, mode="w:gz") as tar:
        archive = Archive(tar, folder)
        archive.add("about", f"rpcrdma-top {VERSION}\n{' '.join(os.uname())}\n".encode())
        archive.add("rpcrdma-top.json", (json + "\n").encode())
        for name in FILES:
            archive.add_file(root, name)
        for name, words in LINES:
            archive.add_file(root, name, words)
        for name in FOLDERS:
            archive.add_folder(root, name)
        for name in LINKS:
            archive.add_links(root, name)
        for name, command in COMMANDS:
            archive.add_command(name, command)
    return path
