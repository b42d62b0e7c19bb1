"""One self-contained HTML page of a report or a comparison of flows: see docs/imbalance.md.

`view` gathers what a page shows from a case (bounded, plain data), `page` turns that into text. Nothing here reads a
clock, a file of the user's or the network; only the page's own style, script and frame are read from this folder.
"""
