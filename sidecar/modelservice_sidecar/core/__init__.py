"""Decisions of the adapter, as functions of values: no clock, no socket, no log. Time, randomness and ids are arguments."""
