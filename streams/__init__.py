"""Pure processors: batches in, batches and a snapshot out. No I/O and no Kafka in here."""
