#!/usr/bin/env python3
"""lib_ports.py N: the first of N free ports in a row, whose metrics ports are free too.

All are below what the kernel by default gives to outgoing connections (net.ipv4.ip_local_port_range): one of
those could get the port of a server that a test has stopped, and the server could not start again.
"""
import random
import socket
import sys


METRICS_OFFSET = 1000  # from the port of a server, as 'sheaf init' sets it


def free_ports(n):
    for _ in range(1000):
        first = random.randrange(20000, 31000)
        ports = [first + i + offset for i in range(n) for offset in (0, METRICS_OFFSET)]
        held = [socket.socket() for _ in ports]
        try:
            for port, s in zip(ports, held):
                s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    sys.exit("no free ports")


if __name__ == "__main__":
    print(free_ports(int(sys.argv[1])))
