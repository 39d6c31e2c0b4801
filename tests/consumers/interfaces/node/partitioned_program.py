"""Three nodes, each in a network namespace of its own, cut off one after the other; prints the counts.

Run it in a namespace of its own (``unshare --net``). That namespace is the only path between the nodes and contains the
agents; it ends with this process. A node is cut off from everybody, by its link, or only from the other nodes, while
agents still reach it. In the second case the node may acknowledge nothing by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import faults
from partition import cut_each
from three_nodes import Nodes, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES: Final = ("node", "node-2", "node-3")
HOSTS: Final = {name: f"10.77.{number}.2" for number, name in enumerate(NODES)}


def ip(*words: str, of: int = 0) -> None:
    """Change the network of this process, or of another's namespace."""
    inside = ["nsenter", "-t", str(of), "-n"] if of else []
    subprocess.run([*inside, "ip", *words], check=True)


def namespace(pid: int | str = "self") -> Path:
    """Return the network namespace of a process."""
    return Path(f"/proc/{pid}/ns/net").readlink()


class Network:
    """The namespaces: each exists as long as a sleeping process in it."""

    def __init__(self) -> None:
        ip("link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1", "ascii")
        self.holders: dict[str, subprocess.Popen[bytes]] = {}
        for number, name in enumerate(NODES):
            child = self.holders[name] = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            eventually(lambda pid=child.pid: namespace(pid) != namespace(), "a namespace of its own")
            ip("link", "add", f"to{number}", "type", "veth", "peer", "name", "out", "netns", str(child.pid))
            ip("addr", "add", f"10.77.{number}.1/24", "dev", f"to{number}")
            ip("link", "set", f"to{number}", "up")
            for words in (
                ["link", "set", "lo", "up"],
                ["addr", "add", f"{HOSTS[name]}/24", "dev", "out"],
                ["link", "set", "out", "up"],
                ["route", "add", "default", "via", f"10.77.{number}.1"],
            ):
                ip(*words, of=child.pid)

    def end(self) -> None:
        """Remove the namespaces."""
        for child in self.holders.values():
            child.kill()
            child.wait()

    @contextlib.contextmanager
    def cut_off(self, name: str, *, agents_too: bool) -> Iterator[None]:
        """Cut a node off from the other nodes, and from the agents or not."""
        number, pid = NODES.index(name), self.holders[name].pid
        others = [f"10.77.{other}.0/24" for other in range(len(NODES)) if other != number]
        if agents_too:
            ip("link", "set", f"to{number}", "down")
        else:
            for net in others:
                ip("route", "add", "blackhole", net, of=pid)
        try:
            yield
        finally:
            if agents_too:
                ip("link", "set", f"to{number}", "up")
            else:
                for net in others:
                    ip("route", "del", "blackhole", net, of=pid)


def main(folder: str, rounds: str) -> None:
    """Cut off the nodes in turn."""
    network = Network()
    os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "XDG_CONFIG_HOME": f"{folder}/config"}
    nodes = Nodes(Path(folder), hosts=HOSTS)
    try:
        nodes.prefix = {name: ["nsenter", "-t", str(holder.pid), "-n"] for name, holder in network.holders.items()}
        nodes.start()
        cut_each(nodes, network, int(rounds))
    finally:
        nodes.end()
        network.end()
    sys.stdout.write(json.dumps(faults.counted()))


main(*sys.argv[1:])
