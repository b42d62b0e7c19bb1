"""The statement that the merge applies to a clock: what its batch states, corrected by its samples.

See streams.clock.states for the rules. A chain of clocks from a stamp up to its root goes in, with the bound at each
step (streams.clock.statement); the chain that holds comes out. Only clocks that are read as they stand are judged
(their nominal map to the parent is a whole number of seconds): samples compare readings, not somebody's correction.
"""

import math
from typing import NamedTuple

from schemas import columns as c
from schemas.time import NS, TAI
from streams.clock.known import Look
from streams.clock.relation import NEVER, Measured, Relation
from streams.clock.statement import UNKNOWN, Line, Statement, Step, Value, integer, named
from streams.clock.states import States, assured

HOPS_MAX = 4  # clocks of a chain
EPOCH_BITS = 16
Row = tuple[Value, ...]


class Chain(NamedTuple):
    """Clocks from the stamp up: rows of statements, the bound of each to the next, nodes (one more than steps)."""

    rows: Statement
    steps: list[Step]
    nodes: list[tuple[str, int]]


class Decided(NamedTuple):
    """A chain, the map to TAI of its first clock (the same, by another reference), how many claims were widened, and
    whether the stated bound to TAI holds still: nothing was widened or became unknown."""

    chain: Chain
    line: Line | None
    widened: int
    stands: bool


class Moment(NamedTuple):
    """What stamps are judged by: the states, for stamps at a time (TAI) in a window that ends at `now_ns`."""

    states: States
    at_ns: int
    now_ns: int

    def look(self, node: tuple[str, int]) -> Look:
        """What is known of a clock in an epoch that statements count."""
        return self.states.look(node[0], node[1], self.at_ns, self.now_ns) or Look(0)


def decide(chain: Chain, line: Line | None, moment: Moment) -> Decided | None:
    """What holds of a stated chain at a moment; None if it stands as stated."""
    widened: list[str] = []
    lost: list[str] = []
    done = _from(chain, 0, line, moment, widened, lost)
    if done == chain:
        return None
    done = Chain(done.rows, done.steps[:HOPS_MAX], done.nodes[: HOPS_MAX + 1])
    if line is not None and not line[2]:
        # Any moment may be the reference; the one at which a bound that grows was found keeps it tight.
        at = next((one.as_of_ns for one in done.steps if one.bound_ns != UNKNOWN and one.growth_ppb), line[1])
        line = (at - line[1] + line[0], at, 0.0)
    return Decided(done, line, len(widened), not (widened or lost))


def _from(
    chain: Chain, level: int, line: Line | None, moment: Moment, widened: list[str], lost: list[str]
) -> Chain:
    """The chain from a level up, decided."""
    if level >= len(chain.steps) or level >= len(chain.rows):
        return Chain(chain.rows[level:], chain.steps[level:], chain.nodes[level:])
    rest = _from(chain, level + 1, None, moment, widened, lost)
    row, stated, node = chain.rows[level], chain.steps[level], chain.nodes[level]
    look = moment.look(node)
    node = (node[0], epoch_of(node[1], look.epoch))
    if look.torn:
        lost.append(node[0])
        return _unknown(row, stated, [], Chain((), [], []), line, f"of which epoch is not known ({look.why})")
    found = look.found if _nominal(row) else None
    outdated = look.broke_ns != NEVER and stated.as_of_ns < look.broke_ns
    if found is not None:
        parent, relation, state = found
        if outdated or (stated.assurance == c.Assurance.CLAIMED and assured(state)):
            if outdated:
                lost.append(node[0])
            return _measured(chain, level, node, rest, line, moment, found, outdated)
        above = chain.nodes[level + 1][0]
        comparable = parent == above or (above == TAI and relation.root >= 0)
        if comparable and stated.bound_ns != UNKNOWN and _contradicted(relation, stated):
            widened.append(node[0])
            return _widened(row, stated, node, rest, line, relation, state)
    elif outdated or (
        look.void_ns != NEVER
        and stated.assurance == c.Assurance.CLAIMED
        and stated.as_of_ns < look.void_ns
        and _nominal(row)
    ):
        lost.append(node[0])
        why = f"{look.why}, and not measured since" if outdated else "its samples are too old"
        return _unknown(row, stated, [node], rest, line, why)
    first = row if node == chain.nodes[level] else _renumbered(row, node[1])
    return Chain((first, *rest.rows), [stated, *rest.steps], [node, *rest.nodes])


def _nominal(row: Row) -> bool:
    """Whether readings are the parent's but for whole seconds."""
    values = named(row)
    ref, parent = integer(values["clk_ref_ns"]), integer(values["clk_ref_parent_ns"])
    if ref == UNKNOWN or parent == UNKNOWN:
        return values["clk_timescale"] != c.Timescale.ARBITRARY
    return (parent - ref) % NS == 0 and not values["clk_rate_ppb"]


def _contradicted(relation: Relation, stated: Step) -> bool:
    """Whether one of the last samples cannot be within a stated bound (the parent's own error allowed for)."""
    return any(surely > _grown(stated, at) for surely, at in relation.furthest())


def _grown(step: Step, at_ns: int) -> int:
    grown: int = math.ceil(step.growth_ppb * 1e-9 * abs(at_ns - step.as_of_ns))
    return step.bound_ns + grown


def _step(state: Measured) -> Step:
    if state.bound_ns is None:
        return Step(UNKNOWN, 0.0, 0, int(c.Assurance.CLAIMED), 1.0)
    epsilon = 1.0 if state.epsilon is None else state.epsilon
    return Step(state.bound_ns, state.growth_ppb, state.as_of_ns, int(state.assurance), epsilon)


def epoch_of(stated: int, found: int) -> int:
    """The epochs that statements count and those found here, in one number (int32): the stated ones while none was."""
    merged: int = stated if not found else (found & 0x7FFF) << EPOCH_BITS | (stated & (2**EPOCH_BITS - 1))
    return merged


def _told(row: Row, stated: Step) -> str:
    """What was claimed, for the record."""
    provenance = named(row)["clk_provenance"]
    size = "no bound" if stated.bound_ns == UNKNOWN else f"{stated.bound_ns} ns"
    return f"claimed {size}" + (f" ({provenance})" if provenance else "")


def _row(
    row: Row, epoch: int, parent: str | None, step: Step, line: Line | None, status: int, provenance: str
) -> Row:
    """A statement with these values in place of its own. Times are on the clock's reading where `line` tells it."""
    as_of = UNKNOWN if line is None or step.bound_ns == UNKNOWN else step.as_of_ns - line[1] + line[0]
    values = dict(named(row)) | {
        "clk_epoch": epoch,
        "clk_parent": parent,
        "clk_status": status,
        "clk_bound_ns": step.bound_ns,
        "clk_as_of_ns": as_of,
        "clk_growth_ppb": step.growth_ppb,
        "clk_assurance": step.assurance,
        "clk_epsilon": step.epsilon if step.assurance == c.Assurance.STATISTICAL else None,
        "clk_provenance": provenance,
    }
    return tuple(values[column.name] for column in c.CLOCKS)


def _renumbered(row: Row, epoch: int) -> Row:
    values = dict(named(row)) | {"clk_epoch": epoch}
    return tuple(values[column.name] for column in c.CLOCKS)


def _unknown(
    row: Row, stated: Step, nodes: list[tuple[str, int]], rest: Chain, line: Line | None, why: str
) -> Chain:
    """The clock without a bound; without `nodes` not even comparable with itself."""
    step = Step(UNKNOWN, 0.0, 0, int(c.Assurance.CLAIMED), 1.0)
    values = named(row)
    epoch = nodes[0][1] if nodes else integer(values["clk_epoch"])
    parent = None if values["clk_parent"] is None else str(values["clk_parent"])
    first = _row(
        row, epoch, parent, step, line, int(c.Status.UNKNOWN), f"unknown: {why}; {_told(row, stated)}"
    )
    return Chain((first, *rest.rows), [step, *rest.steps], [*nodes, *rest.nodes] if nodes else [])


def _measured(
    chain: Chain,
    level: int,
    node: tuple[str, int],
    rest: Chain,
    line: Line | None,
    moment: Moment,
    measured: tuple[str, Relation, Measured],
    outdated: bool,
) -> Chain:
    """The clock on its measured parent, and on from there. An outdated claim says nothing of that parent either."""
    row, stated = chain.rows[level], chain.steps[level]
    parent, _, state = measured
    step = _step(state)
    told = f"measured: {state.why}; {_told(row, stated)}"
    first = _row(row, node[1], parent, step, line, int(state.status), told)
    names = [name for name, _ in rest.nodes]
    if parent in names:
        at = names.index(parent)
        return Chain((first, *rest.rows[at:]), [step, *rest.steps[at:]], [node, *rest.nodes[at:]])
    # A parent that the batch does not know: what it was measured against, and at last the claim to TAI.
    rows, steps, nodes = [first], [step], [node]
    while True:
        above = moment.look((parent, 0))
        found = above.found
        if above.torn:
            return Chain(tuple(rows), steps, nodes)
        nodes.append((parent, epoch_of(0, above.epoch)))
        if found is None or not assured(found[2]) or len(steps) >= HOPS_MAX - 1:
            break
        if found[0] in [name for name, _ in nodes]:
            break
        steps.append(_step(found[2]))
        rows.append(_parent_row(row, parent, nodes[-1][1], found[0], steps[-1], f"measured: {found[2].why}"))
        parent = found[0]
    claims = chain.steps[level:]
    if (
        not outdated
        and chain.nodes[-1] == (TAI, 0)
        and all(one.bound_ns != UNKNOWN for one in [*claims, *steps])
    ):
        both = [*claims, *steps]
        claim = Step(
            sum(_grown(one, state.as_of_ns) for one in both), sum(one.growth_ppb for one in both), state.as_of_ns,
            int(c.Assurance.CLAIMED), 1.0,
        )  # fmt: skip
        rows.append(
            _parent_row(
                row, parent, nodes[-1][1], TAI, claim, f"{_told(row, stated)} and the measurement together"
            )
        )
        steps.append(claim)
        nodes.append((TAI, 0))
    return Chain(tuple(rows), steps, nodes)


def _parent_row(row: Row, name: str, epoch: int, parent: str, step: Step, provenance: str) -> Row:
    """A statement of a clock that only samples name. Its readings have no map here, so its bound is as of none."""
    made = _row(row, epoch, parent, step, None, int(c.Status.UNKNOWN), provenance)
    values = dict(named(made)) | {
        "clk_id": name,
        "clk_kind": int(c.ClockKind.FREE),
        "clk_timescale": int(c.Timescale.ARBITRARY),
        "clk_flags": 0,
        "clk_utc_offset_s": c.NULL_I16,
        "clk_ref_ns": UNKNOWN,
        "clk_ref_parent_ns": UNKNOWN,
        "clk_rate_ppb": None,
        "clk_quantum_ns": 1,
    }
    return tuple(values[column.name] for column in c.CLOCKS)


def _widened(
    row: Row,
    stated: Step,
    node: tuple[str, int],
    rest: Chain,
    line: Line | None,
    relation: Relation,
    state: Measured,
) -> Chain:
    """The claim, wide enough for the samples that contradict it."""
    bound = relation.out if state.bound_ns is None else max(relation.out, state.bound_ns)
    bound += max(0, relation.root)
    growth = max(stated.growth_ppb, state.growth_ppb)
    step = Step(bound, growth, relation.as_of_ns, int(c.Assurance.CLAIMED), 1.0)
    parent = named(row)["clk_parent"]
    surely = max(surely for surely, _ in relation.furthest())
    provenance = f"widened: it was off by {surely} ns at least, against what was {_told(row, stated)}"
    first = _row(
        row, node[1], None if parent is None else str(parent), step, line, int(state.status), provenance
    )
    return Chain((first, *rest.rows), [step, *rest.steps], [node, *rest.nodes])
