"""The front door: command line, settings, the one runner, the broker, and all the wiring."""
