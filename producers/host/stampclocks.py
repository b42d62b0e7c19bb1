"""The clocks that stamp the lines of a log, as a batch's header states them.

They are not the clocks that the lines are about: those are measured here, and streams/clock makes their
states from the samples. What is claimed of a stamping clock is only what its format says: CLOCK_REALTIME is
UTC as far as the host knows, in steps of what is printed; CLOCK_MONOTONIC counts from boot, and has a map
to CLOCK_REALTIME where the log itself shows one; a line's number or a syslog date without a year is no time
at all."""

from producers.host.boots import BootMap
from producers.host.reading import BOOT, SYSTEM
from schemas.columns import Assurance, Timescale
from schemas.time import ClockState


def system_clock(host: str, quantum_ns: int) -> ClockState:
    """CLOCK_REALTIME of a host as a stamp; its error is not known here."""
    return ClockState(
        clock_id=f"{host}/{SYSTEM}",
        timescale=Timescale.UTC,
        quantum_ns=quantum_ns,
        provenance=f"stamps in a log, read as UTC, in steps of {quantum_ns} ns",
    )


def stamp_clock(host: str, clock: str, quantum_ns: int, boot: BootMap | None) -> ClockState:
    """The clock that stamps a source. `boot` is the map that holds where the stamps count from boot."""
    if clock == SYSTEM:
        return system_clock(host, quantum_ns)
    if clock != BOOT:
        return ClockState(
            clock_id=f"{host}/{clock}", quantum_ns=quantum_ns, provenance="order of the lines only, no time"
        )
    if boot is None or boot.boot_ns is None:
        return ClockState(
            clock_id=f"{host}/{BOOT}", epoch=boot.epoch if boot else 0, quantum_ns=quantum_ns,
            provenance="time since boot; the log does not say when that was",
        )  # fmt: skip
    return ClockState(
        clock_id=f"{host}/{BOOT}", epoch=boot.epoch, parent=f"{host}/{SYSTEM}", quantum_ns=quantum_ns,
        ref_ns=boot.boot_ns, ref_parent_ns=boot.unix_ns, rate_ppb=0.0, bound_ns=boot.bound_ns,
        as_of_ns=boot.boot_ns, growth_ppb=0.0, assurance=Assurance.CLAIMED,
        provenance=boot.provenance,
    )  # fmt: skip
