"""One server's place in the cluster: a placement group, the actor of rank 0 in it, and those of the other ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors import rank_actor, server_actor
from actors.placement import ServerShape
from actors.seat import Seat
from sweeper.node.hardware import together
from sweeper.records import Hardware

NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""

CLOSE_S = 5.0
"""How long actors have to remove their files."""


class ServerGroup:
    """Asks Ray for a server's nodes at once, so that they are demand that an autoscaler sees; all or none.

    ``placed`` is a reference to the seats, which is ready once every part is there. ``seats`` are empty until then.
    """

    def __init__(self, plan: Any, shape: ServerShape, avoid: Collection[str]) -> None:
        """``plan`` as Ray's reference; ``avoid``: ids of nodes that it must not get."""
        self.seats: tuple[Seat, ...] = ()
        self.name = ""
        selector = [{NODE_ID: f"!in({','.join(sorted(avoid))})"}] * shape.nodes if avoid else None
        strategy = "STRICT_PACK" if shape.nodes == 1 else "STRICT_SPREAD"
        self._group = placement_group(
            [shape.bundle] * shape.nodes, strategy=strategy, bundle_label_selector=selector
        )
        self._ranks = [
            self._actor(rank_actor.RankActor, shape, number, rank_actor.THREADS).remote(plan, shape, number)
            for number in range(1, shape.nodes)
        ]
        first = self._actor(server_actor.ServerActor, shape, 0, server_actor.THREADS)
        self.actor = first.remote(plan, shape, self._ranks)
        self.placed = self.actor.seats.remote()

    def _actor(self, kind: type, shape: ServerShape, bundle: int, threads: int) -> Any:
        remote: Any = ray.remote(kind)
        return remote.options(
            num_gpus=shape.gpus,
            num_cpus=shape.cpus,
            resources={n: amount for n, amount in shape.bundle.items() if n not in ("GPU", "CPU")},
            max_concurrency=threads,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, bundle),
        )

    @property
    def hardware(self) -> Hardware:
        return together([seat.hardware for seat in self.seats])

    def nodes(self) -> set[str]:
        """Ids of the nodes that Ray gave it; empty while it waits for some."""
        if self.seats:
            return {seat.node for seat in self.seats}
        placed = placement_group_table(self._group).get("bundles_to_node_id", {})
        return {node for node in placed.values() if node}

    def lost_nodes(self) -> set[str]:
        """Ids of the nodes whose actors of this server do not answer any more."""
        asked = [actor.__ray_ready__.remote() for actor in (self.actor, *self._ranks)]
        ray.wait(asked, num_returns=len(asked), timeout=CLOSE_S)
        return {seat.node for seat, ref in zip(self.seats, asked, strict=True) if not _answered(ref)}

    def closing(self) -> list[Any]:
        """References to wait for before ``kill``: every actor removes its files."""
        return [actor.close.remote() for actor in (self.actor, *self._ranks)]

    def kill(self) -> None:
        """End the actors, and with them the servers, and give the nodes back."""
        for actor in (self.actor, *self._ranks):
            ray.kill(actor)
        remove_placement_group(self._group)


def _answered(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=0)
    except RayError:  # the actor is gone, or silent until now
        return False
    return True


def close(groups: Iterable[ServerGroup]) -> None:
    """Give servers back whose actors answer."""
    groups = list(groups)
    closing = [ref for group in groups for ref in group.closing()]
    if closing:
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
    for group in groups:
        group.kill()


def shared_gpu(there: Iterable[ServerGroup], new: ServerGroup) -> str:
    """Which other server has a GPU of this one, in words; only a misconfigured cluster brings that about."""
    mine = {gpu for seat in new.seats for gpu in seat.gpus}
    for other in there:
        both = mine & {gpu for seat in other.seats for gpu in seat.gpus}
        if both:
            return (
                f"servers {other.name} and {new.name} both got GPU {', '.join(sorted(both))}: is a machine part of the "
                "cluster twice, or does its --num-gpus claim more GPUs than it has?"
            )
    return ""
