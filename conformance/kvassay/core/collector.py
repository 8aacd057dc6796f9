"""How often Python's garbage collector looks at what a long piece of work holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What is loaded stays, and what is made has few cycles: the collector need not look as often as it would."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
