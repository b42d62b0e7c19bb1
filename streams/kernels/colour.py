"""Edge colouring of a bipartite multigraph: the even spread of equal flows that König's theorem promises."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I32 = NDArray[np.int32]


@njit(cache=True)
def colour(left: I32, right: I32, lefts: int, rights: int, colours: int) -> I32:
    """A colour, 0 to colours − 1, for each edge, so that no two edges of one colour meet in a vertex.

    No vertex may have more than `colours` edges. Each edge takes a colour free at its left end; where that is
    taken at the right end, the path from there that alternates between it and one free there is swapped.
    """
    at_left = np.full((lefts, colours), -1, np.int32)  # the edge of each colour
    at_right = np.full((rights, colours), -1, np.int32)
    out = np.full(len(left), -1, np.int32)
    for e in range(len(left)):
        u, v = left[e], right[e]
        a = 0
        while at_left[u, a] >= 0:
            a += 1
        b = 0
        while at_right[v, b] >= 0:
            b += 1
        if at_right[v, a] >= 0:
            # Swap a and b along the path that begins at v with an edge of colour a. It never reaches u: it
            # comes to left vertices by edges of colour a, and u has none.
            walk = at_right[v, a]
            at_right[v, a] = -1
            mine, other = a, b
            on_right = True  # the end that walk was reached from
            while True:
                near = right[walk] if on_right else left[walk]
                far = left[walk] if on_right else right[walk]
                if on_right:
                    follow = at_left[far, other]
                    at_right[near, other] = walk
                    at_left[far, other] = walk
                    if at_left[far, mine] == walk:
                        at_left[far, mine] = -1
                else:
                    follow = at_right[far, other]
                    at_left[near, other] = walk
                    at_right[far, other] = walk
                    if at_right[far, mine] == walk:
                        at_right[far, mine] = -1
                out[walk] = other
                if follow < 0:
                    break
                walk = follow
                mine, other = other, mine
                on_right = not on_right
        out[e] = a
        at_left[u, a] = e
        at_right[v, a] = e
    return out
