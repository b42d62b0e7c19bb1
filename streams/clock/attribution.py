"""Which link became slower, when residence times do not explain it.

Theory of operation. A one-way message from host i to host j, less its residence in switches, takes

    y = Σ propagation of its links + o_j − o_i + noise,

with the hosts' clock offsets o, which nobody knows. Compare a reference period with the period now: links keep their
propagation, offsets may move, and a fault adds x > 0 to one directed link now. All but x is nuisance, linear in known
columns (each link's propagation, each host's offset in either period), and is projected out. What is left of a
link's column is all that the data can say of it, so

- a link whose column vanishes cannot be judged;
- links whose columns are left equal cannot be told apart by *any* method on this data: they form a class. A host's way
  up and its way down are one: a delay x on the way up looks like x on the way down with the host's clock moved by x;
- the likeliest class is that whose column explains most of what is left, in standard deviations z. It is blamed if z
  passes the quantile at which the best of all classes would, without a fault, pass with probability `false_share`.

Messages of one path and period have equal columns, so their mean holds all that they say. Its σ has two parts: each
message's own, which falls with their number, and the error of an estimated residence, which they share and which does
not. (Counted as independent, it makes healthy links look guilty.) One common factor of all σ is taken from the
residuals, so that only their ratios matter.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Queues are skewed and σ is itself estimated, so tails are wider than Gauss's: at 1e-3 three of 400 simulated fabrics
# without a fault were blamed.
FALSE_SHARE: Final = 1e-4
_SAME: Final = 1e-6  # columns whose directions differ by less are equal
_GONE: Final = 1e-6  # share of a column that counts as nothing


@dataclass(frozen=True)
class Messages:
    """One-way messages. `link[i, l]`: message i took directed link l. `now`: of the period judged, not the reference.
    `path`: a number for its route. `delay_ns`: arrival − departure − residence, across two clocks. `sigma_ns` > 0:
    its own noise. `shared_ns` ≥ 0: noise that it shares with those of its path and period (0: residence matched)."""

    sender: I64
    receiver: I64
    path: I64
    link: Bool
    now: Bool
    delay_ns: F64
    sigma_ns: F64
    shared_ns: F64


@dataclass(frozen=True)
class Means:
    """Messages of one path, period and kind (matched or not) as one row each; `sigma_ns` of the mean."""

    sender: I64
    receiver: I64
    link: Bool
    now: Bool
    delay_ns: F64
    sigma_ns: F64


def means(messages: Messages) -> Means:
    """One row for all messages that could only say the same."""
    kind = (messages.path * 2 + messages.now) * 2 + (messages.shared_ns > 0)
    _, first, group = np.unique(kind, return_index=True, return_inverse=True)
    count = np.bincount(group).astype(np.float64)
    own = np.bincount(group, messages.sigma_ns**2) / count**2
    shared = np.bincount(group, messages.shared_ns**2) / count
    return Means(
        messages.sender[first], messages.receiver[first], messages.link[first], messages.now[first],
        np.bincount(group, messages.delay_ns) / count, np.sqrt(own + shared),
    )  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """What these messages can say, whatever their delays: classes of links, and their columns freed of nuisance."""

    classes: tuple[tuple[int, ...], ...]
    unjudged: tuple[int, ...]
    directions: F64  # unit columns, one a class
    reach: F64  # by class: z of an extra ns, for σ as given
    nuisance: F64  # orthonormal columns
    freedom: int  # messages less nuisance


@dataclass(frozen=True)
class Blame:
    """The likeliest class. `blamed`: whether z passed. `delay_ns` is the extra delay, `error_ns` its σ."""

    links: tuple[int, ...]
    delay_ns: float
    error_ns: float
    z: float
    blamed: bool


def why(links: tuple[int, ...]) -> str:
    """Why a class has these links and no fewer."""
    if len(links) == 1:
        return "one link: no other link, and no clock's offset, could look the same"
    return (
        "a change of the clock offset of a host behind them makes a delay on one of these links look like the same "
        "delay on another"
    )


def geometry(messages: Means, hosts: int) -> Geometry:
    """Project out links' propagation and hosts' offsets in both periods; group what is left."""
    rows = np.arange(len(messages.sender))
    weight = 1.0 / messages.sigma_ns
    moved = np.zeros((len(rows), 2 * hosts))
    period = np.where(messages.now, hosts, 0)
    moved[rows, period + messages.receiver] += 1.0
    moved[rows, period + messages.sender] -= 1.0
    taken = messages.link.astype(np.float64)
    basis, sizes, _ = np.linalg.svd(np.hstack([taken, moved]) * weight[:, None], full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    fault = taken * (messages.now * weight)[:, None]
    left = fault - basis @ (basis.T @ fault)
    size, whole = np.linalg.norm(left, axis=0), np.linalg.norm(fault, axis=0)
    seen = np.flatnonzero(size > _GONE * np.maximum(whole, 1e-300))
    unit = left[:, seen] / size[seen]
    alike = unit.T @ unit > 1 - _SAME
    classes, firsts = [], []
    open_ = np.ones(len(seen), bool)
    for place in range(len(seen)):
        if open_[place]:
            members = np.flatnonzero(alike[place] & open_)
            open_[members] = False
            classes.append(tuple(seen[members].tolist()))
            firsts.append(place)
    unjudged = np.setdiff1d(np.arange(messages.link.shape[1]), seen)
    return Geometry(
        tuple(classes), tuple(unjudged.tolist()), unit[:, firsts], size[seen][firsts], basis,
        len(rows) - basis.shape[1],
    )  # fmt: skip


def blame(messages: Means, shape: Geometry, false_share: float = FALSE_SHARE) -> Blame | None:
    """The likeliest class; None where the messages can judge no link."""
    if not shape.classes or shape.freedom < 3:
        return None
    scaled = messages.delay_ns / messages.sigma_ns
    left = scaled - shape.nuisance @ (shape.nuisance.T @ scaled)
    along = shape.directions.T @ left
    best = int(np.argmax(along))
    rest = max(0.0, float(left @ left) - float(along[best]) ** 2)
    factor = float(np.sqrt(rest / (shape.freedom - 1))) or 1e-9
    limit = NormalDist().inv_cdf(1 - false_share / len(shape.classes))
    z = float(along[best]) / factor
    reach = float(shape.reach[best])
    return Blame(shape.classes[best], float(along[best]) / reach, factor / reach, z, z > limit)
