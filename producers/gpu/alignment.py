"""Which kernels of the ranks are one collective: by its sequence number, else by position.

A *chain* is what one lane of a rank did in a group, in order, as (operation, elements). The rank with most
of them is the reference; a chain of another rank counts if it fits in exactly one place there, or the other
way round. A chain that fits nowhere or in several places stays unmatched: an order guessed wrongly accuses
an innocent clock.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from producers.gpu.collectives import Member
from schemas.columns import Op

Identity = tuple[Any, ...]  # of one collective; equal for all its members


@dataclass(frozen=True)
class Match:
    """A member and the identity of its collective, equal for all its members."""

    member: Member
    identity: Identity
    assumed: bool


def match(found: Sequence[Member], unmatched: Counter[str]) -> list[Match]:
    """Give every member that can be placed its collective's identity; count the rest by reason."""
    out: list[Match] = []
    chains: dict[tuple[Any, ...], dict[tuple[int, int], list[Member]]] = defaultdict(
        lambda: defaultdict(list)
    )
    repeats: Counter[tuple[Any, ...]] = Counter()
    for member in sorted(found, key=lambda each: (each.rank, each.lane, each.begin_ns, each.row)):
        if member.group is None:
            unmatched["group unknown"] += 1
        elif member.sequence is not None and member.peers is None:
            if member.op == Op.UNKNOWN:
                unmatched["operation unknown"] += 1
                continue
            # One number may cover several kernels of a coalesced call, in the same order everywhere.
            identity = ("seq", member.group, member.op, member.sequence)
            again = repeats[identity, member.rank]
            repeats[identity, member.rank] += 1
            assumed = member.assumed or member.splits_unknown
            out.append(Match(member, (*identity, again), assumed))
        else:
            chains[member.group, member.peers][member.rank, member.lane].append(member)
    for (group, peers), of_group in chains.items():
        places = align({key: [each.token for each in chain] for key, chain in of_group.items()})
        for key, chain in of_group.items():
            if key not in places:
                unmatched["no unique alignment"] += len(chain)
                continue
            reference, offset = places[key]
            for index, member in enumerate(chain):
                if member.op == Op.UNKNOWN:
                    unmatched["operation unknown"] += 1
                    continue
                out.append(Match(member, ("index", group, peers, reference, index + offset), True))
    return _with_roots(out)


def _with_roots(found: list[Match]) -> list[Match]:
    """Drop roots that members of one collective do not agree on: they are unknown then."""
    named: dict[Identity, set[int]] = defaultdict(set)
    for each in found:
        if each.member.root is not None:
            named[each.identity].add(each.member.root)
    return [
        replace(each, member=replace(each.member, root=next(iter(roots)) if len(roots) == 1 else None))
        if (roots := named.get(each.identity))
        else each
        for each in found
    ]


def align(
    chains: Mapping[tuple[int, int], Sequence[tuple[Op, int | None]]],
) -> dict[tuple[int, int], tuple[int, int]]:
    """Where each chain (rank, lane) lies: (number of the reference rank's chain, place of its first entry).

    Chains that fit nowhere, in several places, or where another chain of their rank lies, are left out.
    """
    total: Counter[int] = Counter()
    for (rank, _), tokens in chains.items():
        total[rank] += len(tokens)
    reference_rank = min(total, key=lambda rank: (-total[rank], rank))
    codes: dict[tuple[Op, int | None], int] = {}
    coded = {
        key: np.array([codes.setdefault(token, len(codes)) for token in tokens], "<u4").tobytes()
        for key, tokens in chains.items()
    }
    references = [key for key in sorted(chains) if key[0] == reference_rank]
    out = {key: (number, 0) for number, key in enumerate(references)}
    taken: Counter[tuple[int, int]] = Counter()
    fits = {}
    for key in sorted(chains):
        if key[0] == reference_rank:
            continue
        where = [
            (number, place)
            for number, reference in enumerate(references)
            for place in _places(coded[key], coded[reference])
        ]
        if len(where) == 1:
            fits[key] = where[0]
            taken[key[0], where[0][0]] += 1
    out |= {key: place for key, place in fits.items() if taken[key[0], place[0]] == 1}
    return out


def _places(chain: bytes, reference: bytes) -> list[int]:
    """Where the shorter lies in the longer, as the chain's first place in the reference; two are enough."""
    if len(chain) > len(reference):
        return [-place for place in _places(reference, chain)]
    out: list[int] = []
    at = reference.find(chain)
    while at >= 0 and len(out) < 2:
        if at % 4 == 0:
            out.append(at // 4)
        at = reference.find(chain, at + 1)
    return out
