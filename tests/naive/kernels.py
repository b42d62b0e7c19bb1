"""Every compiled kernel again in a few obvious lines."""

from collections.abc import Sequence

from streams.kernels.match import FROM_ROOT, NO_EDGE, TO_ROOT

LEAST = -(2**63)


def take_rows(
    source: Sequence[int], raw: Sequence[int], first: Sequence[int], skip: Sequence[int],
    line: Sequence[tuple[int, int, float]],
) -> list[tuple[int, int, bool]]:  # fmt: skip
    """(sequence number, time, whether new) of each row; `line`: (reference, TAI there, rate) by entry."""
    following = list(first)
    out = []
    for entry, stamp in zip(source, raw, strict=True):
        seq = following[entry]
        following[entry] += 1
        ref, tai, rate = line[entry]
        out.append((seq, tai + (stamp - ref) + round((stamp - ref) * rate), seq >= skip[entry]))
    return out


def raise_windows(
    source: Sequence[int], ordered: Sequence[bool], last: Sequence[int], window: Sequence[int]
) -> tuple[list[int], list[int]]:
    """(windows, last by source): the greatest so far of each ordered source."""
    last, out = list(last), []
    for s, w in zip(source, window, strict=True):
        if ordered[s]:
            last[s] = w = max(w, last[s])
        out.append(w)
    return out, last


def group_ids(key: Sequence[int], kind: Sequence[int]) -> tuple[list[int], int]:
    """Numbers of the distinct pairs in order of first appearance."""
    seen: dict[tuple[int, int], int] = {}
    return [seen.setdefault(pair, len(seen)) for pair in zip(key, kind, strict=True)], len(seen)


def list_pairs(start: Sequence[int], role: Sequence[int], join: Sequence[bool]) -> list[tuple[int, int]]:
    """Every cause with every other endpoint of its group, unless it is a join."""
    out = []
    for g in range(len(start) - 1):
        members = range(start[g], start[g + 1])
        if not join[g]:
            out += [(i, j) for i in members if role[i] == 0 for j in members if role[j] != 0]
    return out


def best_causes(
    start: Sequence[int], shape: Sequence[int], root: Sequence[bool], value: Sequence[int], tie: Sequence[int]
) -> list[int]:
    """The other member that is a cause with the greatest value, then the least tie; -1 without one."""
    out = [-1] * len(value)
    for g in range(len(shape)):
        members = range(start[g], start[g + 1])
        if shape[g] == NO_EDGE:
            continue
        for i in members:
            if shape[g] == TO_ROOT and not root[i]:
                continue
            others = [j for j in members if j != i and (shape[g] != FROM_ROOT or root[j])]
            out[i] = min(others, key=lambda j: (-value[j], tie[j]), default=-1)
    return out


Constraint = tuple[int, int, int]  # value[to] >= value[from] + gap


def constraints(
    duration: Sequence[int], chain: Sequence[int], edges: Sequence[tuple[int, int]],
    joins: Sequence[Sequence[tuple[int, int]]],
) -> list[Constraint]:  # fmt: skip
    """Every constraint between two points: 2i is the begin of row i, 2i + 1 its end. A join is a list of
    (cause's point or -1, effect's point or -1) by member."""
    out = [(2 * i, 2 * i + 1, length) for i, length in enumerate(duration)]
    out += [(2 * i - 2 if link == 1 else 2 * i - 1, 2 * i, 0) for i, link in enumerate(chain) if link]
    out += [(a, b, 1) for a, b in edges]
    for members in joins:
        for i, (_, effect) in enumerate(members):
            out += [
                (cause, effect, 1)
                for j, (cause, _) in enumerate(members)
                if i != j and min(cause, effect) >= 0
            ]
    return out


def forward(lower: Sequence[int], found: Sequence[Constraint]) -> list[int] | None:
    """Least values at or above `lower` under the constraints; None if there are none (a cycle)."""
    value = list(lower)
    for _ in range(len(value) + 1):
        moved = False
        for a, b, gap in found:
            if value[b] < value[a] + gap:
                value[b] = value[a] + gap
                moved = True
        if not moved:
            return value
    return None
