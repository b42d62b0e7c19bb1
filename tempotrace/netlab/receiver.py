"""Prints, in hex, each message that ptp4l sends to its event monitor. Sent to the nodes as text: no imports of ours.

Usage: python -c TEXT SOCKET
"""

import socket
import sys


def main() -> None:
    """Receive until killed."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(sys.argv[1])
    while True:
        sys.stdout.write(receiver.recv(4096).hex() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
