"""Models that the adapter runs itself, each in a process of its own: the adapter's side and the process's side.

Owns processes, frames and runtimes. `process` and `supervised` run in the adapter; `program` and `runtimes` run in the worker,
under an interpreter that may hold nothing but numpy, msgspec and the model's runtime. Both sides import `wire`. This file must
import nothing, and neither `wire`, `program` nor `runtimes` anything of the adapter but `core` modules that need only Python.
"""
