"""What can be wrong with a trace beside what its monitors say."""

from __future__ import annotations

from ..core.words import Word


class Rule(Word):
    """What a trace, or a line of it, can contradict."""

    EMPTY = "EMPTY", "The trace holds no event."
    TRUNCATED = "TRUNCATED", "The end of the trace is missing: it was cut."
    COUNT_DIFFERS = "COUNT_DIFFERS", "The end counts other events than there are."
    SEQUENCE = "SEQUENCE", "The numbers of lines have a gap or a repeat: lines were lost, came twice or out of order."
    RESULT_SCHEMA = "RESULT_SCHEMA", "A result does not meet the schema of its op."
    REPLY_DIFFERS = "REPLY_DIFFERS", "A reply is another than the reference gives to the same calls."
    CASE_FAILS = "CASE_FAILS", "The replies of a case do not meet what the case expects."
