"""Measures the pipeline: each stage on prefilled input, beside a bare copy through the same broker.

machine    what it ran on
measure    stopwatch, one pass, a stage's figures over its passes
ground     the broker and the tenants of a run, and their removal
fill       simulated events: made, encoded, published
copying    the limit: a bare transactional copy, and a bare read
stages     a stage in memory, and through Kafka by the runner that production uses
incidents  the stage that is no processor: Faust, one record at a time
bench      the run: which stage after which, and the result as one object
report     the same for people
"""
