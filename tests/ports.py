"""Free ports of this machine."""

import socket


def local_peers(count: int) -> dict[str, int]:
    """Names and free UDP ports of nodes to be run on this machine: n0, n1, ..."""
    sockets = []
    try:
        for _ in range(count):
            held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sockets.append(held)
            held.bind(("127.0.0.1", 0))
        return {f"n{number}": held.getsockname()[1] for number, held in enumerate(sockets)}
    finally:
        for held in sockets:
            held.close()
