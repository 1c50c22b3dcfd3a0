"""Maximum flow between two sets of nodes, in levels (Dinic, 1970), from any flow on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

ENDLESS = 2**62
"""The room of an arc that no cut may go through."""


class Network(NamedTuple):
    """Nodes with their arcs `arcs_of[x] … arcs_of[x + 1] − 1`. `head` is where an arc leads, `back` the arc
    that takes its flow back, `room` what may still flow through it: the only array that changes."""

    arcs_of: Ints
    head: Ints
    back: Ints
    room: Ints


def network(tail: Ints, head: Ints, room: Ints, nodes: int) -> Network:
    """The network of arcs from `tail` to `head`; behind each stands one that takes its flow back."""
    tails, heads = np.concatenate([tail, head]), np.concatenate([head, tail])
    order = np.argsort(tails, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    twin = np.concatenate([place[len(tail) :], place[: len(tail)]])
    return Network(
        np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=nodes))]).astype(np.int64),
        heads[order],
        twin[order],
        np.concatenate([room, np.zeros_like(room)])[order],
    )


@kernel
def reached(net: Network, inside: Flags) -> Flags:
    """The nodes that can be reached from those `inside` through arcs with room."""
    there = inside.copy()
    stack = np.zeros(len(inside), np.int64)
    depth = 0
    for node in range(len(inside)):
        if inside[node]:
            stack[depth] = node
            depth += 1
    while depth > 0:
        depth -= 1
        node = stack[depth]
        for arc in range(net.arcs_of[node], net.arcs_of[node + 1]):
            to = net.head[arc]
            if net.room[arc] > 0 and not there[to]:
                there[to] = True
                stack[depth] = to
                depth += 1
    return there


@kernel
def push_flow(net: Network, inside: Flags, outside: Flags, enough: int) -> int:
    """Let flow from the nodes `inside` to the nodes `outside` until no more can or it comes to `enough`; how
    much was added. A cut through arcs of finite room that keeps `inside` whole on one side and `outside` on
    the other holds at least as much as flows in all; nodes that join either set later do no harm to it."""
    nodes = len(net.arcs_of) - 1
    level, cursor = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    path = np.zeros(nodes + 1, np.int64)
    total = 0
    while total < enough and _set_levels(net, inside, outside, level, path):
        for node in range(nodes):
            cursor[node] = net.arcs_of[node]
        for source in range(nodes):
            while inside[source] and total < enough:
                added = _push_path(net, source, outside, level, cursor, path, enough - total)
                if added == 0:
                    break
                total += added
    return total


@kernel(borrows=True)
def _set_levels(net: Network, inside: Flags, outside: Flags, level: Ints, queue: Ints) -> bool:
    """How far each node is from `inside` along arcs with room, −1 for those behind the nearest node
    `outside`; whether there is such a one."""
    begin, end = 0, 0
    for node in range(len(level)):
        level[node] = 0 if inside[node] else -1
        if inside[node]:
            queue[end] = node
            end += 1
    while begin < end:
        node = queue[begin]
        begin += 1
        if outside[node]:
            return True
        for arc in range(net.arcs_of[node], net.arcs_of[node + 1]):
            to = net.head[arc]
            if net.room[arc] > 0 and level[to] < 0:
                level[to] = level[node] + 1
                queue[end] = to
                end += 1
    return False


@kernel(borrows=True)
def _push_path(
    net: Network, source: int, outside: Flags, level: Ints, cursor: Ints, path: Ints, most: int
) -> int:
    """Push at most `most` along one path of rising levels from `source`; 0 when there is none left."""
    node, depth = source, 0
    while not outside[node]:
        while cursor[node] < net.arcs_of[node + 1]:
            arc = cursor[node]
            if net.room[arc] > 0 and level[net.head[arc]] == level[node] + 1:
                break
            cursor[node] += 1
        if cursor[node] < net.arcs_of[node + 1]:
            path[depth] = cursor[node]
            node = net.head[cursor[node]]
            depth += 1
        elif depth == 0:
            return 0
        else:
            depth -= 1
            node = net.head[net.back[path[depth]]]
            cursor[node] += 1
    for i in range(depth):
        most = min(most, net.room[path[i]])
    for i in range(depth):
        net.room[path[i]] -= most
        net.room[net.back[path[i]]] += most
    return most
