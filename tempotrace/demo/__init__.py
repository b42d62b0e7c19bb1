"""The demo: a broker, live producers and all stages as real processes, then what the lake says of the run."""
