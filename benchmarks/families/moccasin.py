"""The 18 computation graphs that come with Moccasin (Bartan et al., ICML 2023): random layered graphs, made
as in appendix A of "Neural Topological Ordering for Computation Graphs" (Gagrani et al., 2022), and networks
of Checkmate (Jain et al., MLSys 2020).

They are read from a folder or from the address of an archive, and are no part of this project.
"""

from __future__ import annotations

import io
import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memplan_engine.graph import Graph, Op, Role, Storage, Tensor, check_graph

ADDRESS = "https://github.com/haoming-codes/moccasin/archive/ff7ad8b1ae9a92a90fd06a4536f447d74bf045d1.tar.gz"
"""The public repository, at the commit that the figures are of."""
SECONDS = 60.0
"""Of a download, between two signs of life."""


def instances(source: str) -> Iterator[Graph]:
    """The graphs of a folder, or of the archive at an address, the smallest first; OSError where there are
    none."""
    named = _downloaded(source) if "://" in source else _below(Path(source))
    if not named:
        raise OSError(f"{source}: no .json")
    for name in sorted(named, key=lambda name: (len(named[name]), name)):
        yield read_instance(json.loads(named[name]))


def _downloaded(address: str) -> dict[str, str]:
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:
        whole = io.BytesIO(answer.read())
    texts = {}
    with tarfile.open(fileobj=whole) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file:
                texts[Path(member.name).name] = file.read().decode()
    return texts


def _below(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*.json")}


def read_instance(found: dict[str, Any]) -> Graph:
    """A graph as networkx writes it (`node_link_data`): a node is an op that makes `out_cost` or `cost_ram`
    bytes for those it is linked to. What nobody reads is returned. The order given is that of the file."""
    attributes = found["graph"]
    key = "name" if "order" in attributes else "id"
    nodes = {node[key]: node for node in found["nodes"]}
    order = attributes.get("order", sorted(nodes))
    source, target = ("source", "target") if "source" in found["links"][0] else ("0", "1")
    reads: dict[Any, list[Any]] = {node: [] for node in order}
    for link in found["links"]:
        reads[link[target]].append(link[source])
    read = {node for own in reads.values() for node in own}
    ops, storages, tensors = [], [], []
    for node in order:
        nbytes = int(nodes[node]["out_cost" if "out_cost" in nodes[node] else "cost_ram"])
        name = f"n{node}"
        tensors.append(Tensor(name, (nbytes,), "uint8", nbytes, name))
        storages.append(Storage(name, nbytes, Role.ACTIVATION if node in read else Role.OUTPUT))
        ops.append(Op(f"op {node}", "node", tuple(f"n{other}" for other in reads[node]), (name,)))
    returned = tuple(f"n{node}" for node in order if node not in read)
    graph = Graph(attributes["name"], tuple(storages), tuple(tensors), tuple(ops), (), returned)
    return check_graph(graph)
