"""Recallable memory: fixed units, events and clusters of a history's own rows, and what a query recalls of them.

Shapes: ``k`` [T, H_kv, d], ``v`` [T, H_kv, d_v], ``q`` [H_q, d] for one row and [N, H_q, d] for a chunk. Positions
count tokens; spans are half-open. Arithmetic is in the rows' dtype, in float32 at least. The chapter ``spec/memory.md``
derives everything here; its sources are sections 07K to 07P of the article.
"""
