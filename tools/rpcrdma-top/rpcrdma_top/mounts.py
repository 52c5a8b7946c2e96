# SPDX-License-Identifier: GPL-2.0
"""Which mount uses which transport.

/proc/self/mountinfo has the device number of a mount, /sys/fs/nfs/<number>/ links to its RPC clients, and each of
these to the switch with its transports.
"""

import os
import re

from .text import unescaped

MOUNTS = "proc/self/mountinfo"
NFS = "sys/fs/nfs"
CLIENTS = "sys/kernel/sunrpc/rpc-clients"
SWITCHES = "sys/kernel/sunrpc/xprt-switches"


def link_name(path):
    """The last part of where a link leads to, whether or not that was copied too."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def folders(path):
    """What is in a folder, if it is there."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def transports_of(root, device):
    """The numbers of the transports that a device number leads to."""
    numbers = set()
    for link in folders(root / NFS / device):
        client = link_name(link)
        switch = link_name(root / CLIENTS / client / "switch") if client else None
        for path in folders(root / SWITCHES / switch) if switch else []:
            found = re.fullmatch(r"xprt-(\d{1,10})-rdma6?", path.name)
            if found:
                numbers.add(int(found[1]))
    return numbers


def rdma_mounts(root):
    """The mounts over RDMA: device number, mount point, and the server's address."""
    try:
        lines = (root / MOUNTS).read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        # Optional words come before the dash.
        front, dash, back = line.partition(b" - ")
        front, back = front.split(b" "), back.split(b" ")
        if not dash or len(front) < 6 or len(back) < 3:
            continue
        options = dict(option.partition("=")[::2] for option in back[2].decode(errors="replace").split(","))
        if options.get("proto") in ("rdma", "rdma6"):
            yield front[2].decode(errors="replace"), unescaped(front[4]), options.get("addr")


def read_mounts(root):
    """The mount points by the number of the transport, and those whose transports are not known by the address."""
    by_number, by_address = {}, {}
    for device, point, address in rdma_mounts(root):
        numbers = transports_of(root, device)
        for number in numbers:
            by_number.setdefault(number, []).append(point)
        if not numbers:
            by_address.setdefault(address, []).append(point)
    return by_number, by_address
