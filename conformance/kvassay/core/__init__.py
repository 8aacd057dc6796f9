"""The judge: cases, replies, comparison, relations and verdicts.

Nothing here knows of files, terminals, processes or pytest. Imports run from this package to no other
part of ``kvassay``.
"""
