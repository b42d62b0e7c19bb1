"""How often a stated bound of a clock holds: simulated and measured series whose truth is known."""
