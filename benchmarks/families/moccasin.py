"""The 18 computation graphs that come with Moccasin (Bartan et al., ICML 2023): random layered graphs, made as in
appendix A of Gagrani et al. (2022), "Neural Topological Ordering for Computation Graphs", and networks of
Checkmate (Jain et al., MLSys 2020).

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
    """The graphs of a folder, or of the archive at an address; OSError where there is neither."""
    if "://" in source:
        with urllib.request.urlopen(source, timeout=SECONDS) as answer:
            archive = tarfile.open(fileobj=io.BytesIO(answer.read()))
        texts = {
            Path(member.name).name: archive.extractfile(member)
            for member in archive.getmembers()
            if member.isfile() and Path(member.name).suffix == ".json"
        }
        named = {name: file.read().decode() for name, file in texts.items() if file}
    else:
        named = {path.name: path.read_text() for path in Path(source).rglob("*.json")}
    if not named:
        raise OSError(f"{source}: no .json")
    for name in sorted(named, key=lambda name: (len(named[name]), name)):
        yield read_instance(json.loads(named[name]))


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
