"""Bursts of UDP towards the given addresses, inside the namespaces. Run as text: no imports of ours.

Usage: python -c TEXT ADDRESS...   The pattern is fixed: about 14 Mbit/s to each, in bursts that overfill a short
queue of 20 Mbit/s.
"""

import socket
import sys
import time

BURSTS = (2, 14, 1, 30, 5, 9, 22, 1, 3, 17)  # packets
PAUSE_S = 0.0071  # between bursts: the pace of the load itself, there is nothing to wait for


def main() -> None:
    """Send until killed."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    packet = bytes(1200)
    turn = 0
    while True:
        for place, address in enumerate(sys.argv[1:]):
            for _ in range(BURSTS[(turn + 3 * place) % len(BURSTS)]):
                sender.sendto(packet, (address, 9))  # the discard port: nobody listens
        turn += 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
