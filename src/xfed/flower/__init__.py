"""A federation of real devices over Flower: the server's loop on a Grid, and what each node does at home.

Needs the extra `flower`; nothing outside this room and its commands imports it.
"""
