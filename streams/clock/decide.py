"""The statement that the merge applies to a clock: what its batch states, corrected by its samples.

See streams.clock.states for the rules. A chain of clocks from a stamp up to its root goes in, with the bound at each
step (streams.clock.statement); the chain that holds comes out. Only clocks that are read as they stand are judged
(their nominal map to the parent is a whole number of seconds): samples compare readings, not somebody's correction.
"""

import math
from typing import NamedTuple

from schemas import columns as c
from schemas.time import NS, TAI
from streams.clock.relation import Measured, Relation
from streams.clock.statement import UNKNOWN, Line, Statement, Step, Value, integer, named
from streams.clock.states import States, assured, contradicts

HOPS_MAX = 4  # clocks of a chain
EPOCH_BITS = 16
Row = tuple[Value, ...]


class Chain(NamedTuple):
    """Clocks from the stamp up: rows of statements, the bound of each to the next, nodes (one more than steps)."""

    rows: Statement
    steps: list[Step]
    nodes: list[tuple[str, int]]


class Decided(NamedTuple):
    """A chain, the map to TAI of its first clock (the same, by another reference), and how many claims were widened."""

    chain: Chain
    line: Line | None
    widened: int


def decide(chain: Chain, line: Line | None, states: States, at_ns: int) -> Decided | None:
    """What holds of a stated chain around `at_ns` (TAI); None if it stands as stated."""
    widened: list[str] = []
    done = _from(chain, 0, line, states, at_ns, widened)
    if done is chain:
        return None
    done = Chain(done.rows, done.steps[:HOPS_MAX], done.nodes[: HOPS_MAX + 1])
    first = done.steps[0]
    if line is not None and first.bound_ns != UNKNOWN and not line[2]:
        # Any moment may be the reference; the one at which the bound was found keeps it tight.
        line = (first.as_of_ns - line[1] + line[0], first.as_of_ns, 0.0)
    return Decided(done, line, len(widened))


def _from(
    chain: Chain, level: int, line: Line | None, states: States, at_ns: int, widened: list[str]
) -> Chain:
    """The chain from a level up, decided; `chain` itself where nothing changes and the level is 0."""
    if level >= len(chain.steps) or level >= len(chain.rows):
        return chain if level == 0 else Chain(chain.rows[level:], chain.steps[level:], chain.nodes[level:])
    rest = _from(chain, level + 1, None, states, at_ns, widened)
    row, stated, node = chain.rows[level], chain.steps[level], chain.nodes[level]
    found = states.best(node[0], at_ns) if _nominal(row) else None
    if found is not None:
        parent, relation, state = found
        claimed = stated.assurance == c.Assurance.CLAIMED
        if claimed and (assured(state) or _broken(relation, state)):
            return _measured(chain, level, rest, line, states, at_ns, parent, relation, state)
        above = chain.nodes[level + 1][0]
        comparable = parent == above or (above == TAI and relation.root >= 0)
        if (
            comparable
            and stated.bound_ns != UNKNOWN
            and contradicts(relation, _grown(stated, relation.as_of_ns))
        ):
            widened.append(node[0])
            return _widened(row, stated, node, rest, line, relation, state)
    unchanged = rest.steps == chain.steps[level + 1 :] and rest.nodes == chain.nodes[level + 1 :]
    if level == 0 and unchanged:
        return chain
    return Chain((row, *rest.rows), [stated, *rest.steps], [node, *rest.nodes])


def _nominal(row: Row) -> bool:
    """Whether readings are the parent's but for whole seconds."""
    values = named(row)
    ref, parent = integer(values["clk_ref_ns"]), integer(values["clk_ref_parent_ns"])
    if ref == UNKNOWN or parent == UNKNOWN:
        return values["clk_timescale"] != c.Timescale.ARBITRARY
    return (parent - ref) % NS == 0 and not values["clk_rate_ppb"]


def _broken(relation: Relation, state: Measured) -> bool:
    """Whether a bracketed clock was stepped or lost, so that what is claimed of it is no more than that."""
    return state.bound_ns is None and relation.epoch > 0 and state.status == c.Status.STEPPED


def _grown(step: Step, at_ns: int) -> int:
    grown: int = math.ceil(step.growth_ppb * 1e-9 * abs(at_ns - step.as_of_ns))
    return step.bound_ns + grown


def _step(state: Measured) -> Step:
    if state.bound_ns is None:
        return Step(UNKNOWN, 0.0, 0, int(c.Assurance.CLAIMED), 1.0)
    epsilon = 1.0 if state.epsilon is None else state.epsilon
    return Step(state.bound_ns, state.growth_ppb, state.as_of_ns, int(state.assurance), epsilon)


def _epoch(stated: int, measured: int) -> int:
    """The epochs that the producer counts and those found here, in one number (int32)."""
    merged: int = (stated & 0x7FFF) << EPOCH_BITS | (measured & (2**EPOCH_BITS - 1))
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


def _measured(
    chain: Chain,
    level: int,
    rest: Chain,
    line: Line | None,
    states: States,
    at_ns: int,
    parent: str,
    relation: Relation,
    state: Measured,
) -> Chain:
    """The clock on its measured parent, and on from there."""
    row, stated = chain.rows[level], chain.steps[level]
    step = _step(state)
    node = (chain.nodes[level][0], _epoch(chain.nodes[level][1], relation.epoch))
    why = state.why or relation.why
    first = _row(
        row, node[1], parent, step, line, int(state.status), f"measured: {why}; {_told(row, stated)}"
    )
    names = [name for name, _ in rest.nodes]
    if parent in names:
        at = names.index(parent)
        return Chain((first, *rest.rows[at:]), [step, *rest.steps[at:]], [node, *rest.nodes[at:]])
    # A parent that the batch does not know: what it was measured against, and at last the claim to TAI.
    rows, steps, nodes = [first], [step], [node]
    while len(steps) < HOPS_MAX - 1:
        found = states.best(parent, at_ns)
        if found is None or not assured(found[2]) or found[0] in [name for name, _ in nodes]:
            break
        above, of_parent, known = found
        steps.append(_step(known))
        nodes.append((parent, of_parent.epoch))
        rows.append(_parent_row(row, parent, of_parent.epoch, above, steps[-1], f"measured: {known.why}"))
        parent = above
    nodes.append((parent, 0))
    claims = chain.steps[level:]
    if chain.nodes[-1] == (TAI, 0) and all(one.bound_ns != UNKNOWN for one in [*claims, *steps]):
        both = [*claims, *steps]
        claim = Step(
            sum(_grown(one, state.as_of_ns) for one in both), sum(one.growth_ppb for one in both), state.as_of_ns,
            int(c.Assurance.CLAIMED), 1.0,
        )  # fmt: skip
        rows.append(
            _parent_row(row, parent, 0, TAI, claim, f"{_told(row, stated)} and the measurement together")
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
    """The claim, wide enough for the sample that contradicts it."""
    low, high = relation.possible()
    bound = max(abs(low), abs(high)) + max(0, relation.root)
    bound = bound if state.bound_ns is None else max(bound, state.bound_ns + max(0, relation.root))
    growth = max(stated.growth_ppb, state.growth_ppb)
    step = Step(bound, growth, relation.as_of_ns, int(c.Assurance.CLAIMED), 1.0)
    node = (node[0], _epoch(node[1], relation.epoch))
    parent = named(row)["clk_parent"]
    sample = f"{relation.offset} ± {relation.error} ns"
    provenance = f"widened: a sample of {sample} contradicts what was {_told(row, stated)}"
    first = _row(
        row, node[1], None if parent is None else str(parent), step, line, int(state.status), provenance
    )
    return Chain((first, *rest.rows), [step, *rest.steps], [node, *rest.nodes])
