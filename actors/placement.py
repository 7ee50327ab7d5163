"""Which nodes can hold a server, how many servers fit, and what to say when none ever will. Knows no Ray.

A node is the mapping of its resources as Ray names them: ``{"GPU": 8, "CPU": 96, "accelerator_type:H100": 1}``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError

Node = Mapping[str, float]

TYPE = "accelerator_type:"
SOME = 0.001
"""What is asked of an accelerator type: a node has 1 of it, which all its users share."""


@dataclass(frozen=True)
class ServerShape:
    """What one server takes: ``nodes`` nodes, and on each of them so many GPUs, CPUs and resources of the cluster's."""

    nodes: int
    gpus: float
    cpus: float
    accelerator_type: str | None = None
    custom: Mapping[str, float] = field(default_factory=dict)

    @property
    def bundle(self) -> dict[str, float]:
        """What is reserved on each node, as Ray names it."""
        wanted = {"GPU": self.gpus, "CPU": self.cpus, **self.custom}
        if self.accelerator_type:
            wanted[TYPE + self.accelerator_type] = SOME
        return {name: amount for name, amount in wanted.items() if amount}

    def on(self, node: Node) -> int:
        """Parts of servers that the node holds; at most one of each server."""
        return min(int(node.get(name, 0) / amount + 1e-9) for name, amount in self.bundle.items())

    def __str__(self) -> str:
        of_type = f" of type {self.accelerator_type}" if self.accelerator_type else ""
        parts = [f"{self.gpus:g} GPUs{of_type}", f"{self.cpus:g} CPUs"]
        parts += [f"{amount:g} {name}" for name, amount in self.custom.items()]
        where = "one node" if self.nodes == 1 else f"each of {self.nodes} nodes"
        return f"{' and '.join(parts)} on {where}"


def server_shape(study: StudyConfig, nodes: int) -> ServerShape:
    """A server of the study on so many nodes."""
    asked = study.resources
    return ServerShape(
        nodes, study.gpus_per_server / nodes, asked.cpus_per_server, asked.accelerator_type, asked.custom
    )


def possible_shapes(study: StudyConfig) -> list[ServerShape]:
    """As the study file says, or every even split of the server's ranks, on few nodes first.

    Replicas without DP attention, shares of a GPU and CPU servers stay on one node unless the file says otherwise.
    """
    if study.resources.nodes_per_server:
        return [server_shape(study, study.resources.nodes_per_server)]
    ranks, gpus = study.engine.ranks, study.gpus_per_server
    splits = [1]
    if study.engine.replicas == 1 and gpus == ranks:
        splits = [nodes for nodes in range(1, ranks + 1) if ranks % nodes == 0]
    return [server_shape(study, nodes) for nodes in splits]


def servers_on(shape: ServerShape, nodes: Sequence[Node]) -> int:
    """How many servers the nodes hold at the same time, each on ``shape.nodes`` different ones."""
    parts = [shape.on(node) for node in nodes]
    count = sum(parts) // shape.nodes
    while count and sum(min(part, count) for part in parts) < count * shape.nodes:
        count -= 1
    return count


def best_shape(study: StudyConfig, nodes: Sequence[Node]) -> ServerShape | None:
    """The shape with the fewest nodes of which at least one server fits; None: there is none."""
    return next((shape for shape in possible_shapes(study) if servers_on(shape, nodes)), None)


def impossible(study: StudyConfig, nodes: Sequence[Node], further: str = "") -> SweeperError:
    """What is asked for, what the cluster has (``further``: and might get), and what of it is missing."""
    first, *others = possible_shapes(study)
    split = f", or its ranks split over up to {others[-1].nodes} nodes" if others else ""
    have = "; ".join(f"{_times(count)}{text}" for text, count in Counter(map(in_words, nodes)).items())
    said = [
        f"resources: a server needs {first}{split}, but the cluster's nodes have {have or 'nothing: there are none'}",
        *([further] if further else []),
        *_missing(first, nodes),
    ]
    return SweeperError("; ".join(said))


def _missing(shape: ServerShape, nodes: Sequence[Node]) -> list[str]:
    """Names that no node knows, which no waiting for other jobs would bring."""
    said = []
    if shape.accelerator_type and not any(TYPE + shape.accelerator_type in node for node in nodes):
        types = sorted({name.removeprefix(TYPE) for node in nodes for name in node if name.startswith(TYPE)})
        said.append(
            f"no node has resources.accelerator_type {shape.accelerator_type} (there: {', '.join(types) or 'none'})"
        )
    for name in shape.custom:
        if not any(name in node for node in nodes):
            own = sorted({other for node in nodes for other in _own(node)})
            said.append(f"no node has resources.custom.{name} (there: {', '.join(own) or 'none'})")
    return said


def _own(node: Node) -> list[str]:
    """Resources that people gave a node, without those that Ray gives every one."""
    rays = ("CPU", "GPU", "memory", "object_store_memory")
    return [name for name in node if name not in rays and not name.startswith(("node:", TYPE))]


def in_words(node: Node) -> str:
    """``8 GPUs (H100) and 96 CPUs and 1 a100_pool``"""
    types = sorted(name.removeprefix(TYPE) for name in node if name.startswith(TYPE))
    kind = f" ({', '.join(types)})" if types else ""
    own = "".join(f" and {node[name]:g} {name}" for name in sorted(_own(node)))
    return f"{node.get('GPU', 0):g} GPUs{kind} and {node.get('CPU', 0):g} CPUs{own}"


def _times(count: int) -> str:
    return f"{count} times " if count > 1 else ""
