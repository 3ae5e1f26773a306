"""A name server for a test: every name has the address 127.0.0.1. Usage: dns.py ADDRESS; prints each name asked for."""

import socket
import struct
import sys

A, NO_FLAGS, ANSWER = 1, 0x8180, struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 127, 0, 0, 1)

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print("serving", flush=True)
while True:
    query, client = server.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    kind, = struct.unpack_from(">H", query, end - 4)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", "replace"))
        at += 1 + query[at]
    answers = 1 if kind == A else 0
    head = query[:2] + struct.pack(">HHHHH", NO_FLAGS, 1, answers, 0, 0)
    server.sendto(head + query[12:end] + ANSWER * answers, client)
    print("asked for", ".".join(labels), kind, flush=True)
