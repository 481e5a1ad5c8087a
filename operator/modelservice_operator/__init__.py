"""The operator: watches ModelServices and keeps each workload's adapter as it should be.

One level-triggered pass, `reconcile`: gather everything one decision needs, decide on values (`core`), apply the writes,
summarise into status and events. `core` is pure; all I/O lives in the modules beside this one.
"""
