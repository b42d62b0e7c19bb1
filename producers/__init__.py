"""Programs that read the world (logs, traces, sockets, a simulator) and publish batches of events."""
