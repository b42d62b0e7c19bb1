"""The vocabulary every room shares: columns, batches, codec, topics, time, and the processor contract."""
