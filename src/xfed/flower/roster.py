"""Who takes part: nodes come and go, a client's number stays with the name that its node keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xfed.data.card import DataCard
from xfed.data.dealing.partition import Partition, Split
from xfed.errors import InputError
from xfed.files import write_json
from xfed.flower.node import Introduction, card_of


@dataclass(frozen=True)
class Member:
    """What the server knows of a client. Of its name only a digest: who has the run directory cannot pose as it."""

    client: int
    name_sha256: str
    sizes: tuple[int, int, int]
    majority: float
    clip: float
    noise: float


@dataclass
class Roster:
    """All clients that ever joined, which of them are connected, and the cohorts of past rounds."""

    path: Path
    places: int
    federation: str
    members: dict[int, Member] = field(default_factory=dict)
    cohorts: dict[int, list[int]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    """Training samples by client number; 0 for a number that nobody has."""
    test_sizes: list[int] = field(default_factory=list)
    _node_of: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, places: int, until: int) -> Roster:
        """Read a roster as it was after a round."""
        try:
            noted = json.loads(path.read_text(encoding="utf-8"))
            roster = cls(path, places, noted["federation"])
            for values in noted["members"]:
                roster._add(Member(**{**values, "sizes": tuple(values["sizes"])}))
            roster.cohorts = {int(round): each for round, each in noted["cohorts"].items() if int(round) <= until}
            return roster
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{str(path)!r} is damaged: {error}") from None

    def write(self) -> None:
        """Write all but who is connected."""
        members = [asdict(self.members[client]) for client in sorted(self.members)]
        write_json(self.path, {"federation": self.federation, "members": members, "cohorts": self.cohorts})

    # Coming and going

    def join(self, node: int, introduction: Introduction, card: DataCard) -> str | None:
        """Give a node its client's number, the one it had where it was here before; or say why it cannot take part."""
        difference = differing(card, card_of(introduction))
        if difference:
            return f"its data has other {difference} than the federation's"
        if min(introduction.sizes[0], introduction.sizes[2]) < 1:
            return "it has no samples to train or to test on"
        digest = hashlib.sha256(introduction.name.encode()).hexdigest()
        known = next((m.client for m in self.members.values() if m.name_sha256 == digest), None)
        free = [n for n in (introduction.wish, *range(self.places)) if n < self.places and n not in self.members]
        if known is None and not free:
            return f"all {self.places} places are taken"
        if known in self._node_of and self._node_of[known] != node:
            return f"client {known} is connected already"
        member = Member(
            client=free[0] if known is None else known,
            name_sha256=digest,
            sizes=introduction.sizes,
            majority=introduction.majority,
            clip=introduction.clip,
            noise=introduction.noise,
        )
        self._add(member)
        self._node_of[member.client] = node
        return None

    def _add(self, member: Member) -> None:
        self.members[member.client] = member
        for sizes, size in ((self.sizes, member.sizes[0]), (self.test_sizes, member.sizes[2])):
            sizes.extend([0] * (member.client + 1 - len(sizes)))
            sizes[member.client] = size

    def keep_connected(self, nodes: Iterable[int]) -> set[int]:
        """Forget the places of nodes that left; give the nodes that are not placed yet."""
        here = set(nodes)
        self._node_of = {client: node for client, node in self._node_of.items() if node in here}
        return here - set(self._node_of.values())

    def connected(self) -> list[int]:
        """Give the clients that can be asked now, in order."""
        return sorted(self._node_of)

    def node(self, client: int) -> int | None:
        """Find the node of a client; nothing where it has left."""
        return self._node_of.get(client)

    def client(self, node: int) -> int | None:
        """Find the client of a node."""
        return next((client for client, placed in self._node_of.items() if placed == node), None)

    # For the run directory

    def partition(self) -> Partition:
        """Give the clients' sizes as a partition; its indices count within each node's own samples."""

        def positions(sizes: Sequence[int]) -> Split:
            ends = np.cumsum([0, *sizes])
            return Split(*(np.arange(start, stop) for start, stop in pairwise(ends)))

        nobody = (0, 0, 0)
        sizes = [self.members[c].sizes if c in self.members else nobody for c in range(len(self.sizes))]
        return replace(Partition.of(map(positions, sizes)), overlapping=True)

    def baseline(self) -> dict[str, float]:
        """Give the trivial answer's accuracy over all clients."""
        each = [member.majority for member in self.members.values()]
        return {"mean": float(np.mean(each)), "std": float(np.std(each))}


def differing(ours: DataCard, theirs: DataCard) -> str | None:
    """Name the first thing in which two kinds of data do not fit together."""
    for name in ("kind", "input_shape", "classes", "scale", "mean", "std", "vocabulary"):
        if getattr(ours, name) != getattr(theirs, name):
            return name.replace("_", " ")
    return "token ids" if (theirs.tokens or 0) > (ours.tokens or 0) else None


def common_card(introductions: Iterable[Introduction]) -> DataCard:
    """Take the kind of data from the nodes that found a federation; they must agree."""
    cards = [card_of(introduction) for introduction in introductions]
    common = replace(cards[0], tokens=max((card.tokens or 0 for card in cards), default=0) or None)
    for card in cards:
        if difference := differing(common, card):
            raise InputError(f"the nodes that are to found the federation have data of different {difference}")
    return common


def introduction_from(values: Mapping[str, Any]) -> Introduction:
    """Check what a node says of itself."""
    from pydantic import TypeAdapter, ValidationError

    try:
        said: Introduction = TypeAdapter(Introduction).validate_json(values["introduction"])
    except (KeyError, ValidationError):
        raise InputError("an introduction that cannot be understood") from None
    card_of(said)
    return said
