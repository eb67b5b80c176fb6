"""AMQP 1.0, the server's side, without I/O.

A connection turns bytes into events, and calls of its links into bytes. The owner of the socket decides what the
events mean.
"""
