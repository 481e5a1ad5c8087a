"""The one exception of the benchmarks: what cannot be measured, as a sentence for who started it."""


class BenchError(Exception):
    """A benchmark cannot be carried out, or what was measured answered wrongly."""
