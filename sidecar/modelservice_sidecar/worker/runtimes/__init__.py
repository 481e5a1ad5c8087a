"""One module for each runtime that a worker can hold; each has `load(load) -> Model` and imports its runtime only there.

They run in the worker only, and import numpy and, of the adapter, only `worker` and what of `core` needs Python alone.
"""
