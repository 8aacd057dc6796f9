"""CUDA kernels for the hot paths of the reference, behind CuPy, with the reference's signatures.

======================  ==============================================================================================
:mod:`.attention`       split-K partial attention, merge of states, decoding of batches
:mod:`.quest`           extrema of pages, appended rows, bounds
:mod:`.sparq`           products over a few channels
:mod:`.pq`              tables and sums of look-ups
:mod:`.magicpig`        signatures, collisions, probabilities of being sampled
:mod:`.squeezed`        shares of clusters
:mod:`.rows`            gathered rows, the best of many scores
======================  ==============================================================================================

The package imports without CUDA; a call without CuPy arrays says what is missing. Arrays stay where they are: what is
not in a shape that a kernel takes is refused with a line, and never copied silently. Launches go to CuPy's current
stream, and no call waits for the device unless it says so.
"""

from __future__ import annotations

from .runtime import KernelError

__all__ = ["KernelError"]
