"""Traces: what an engine did, one JSON line per call, held to the same rules as an engine that is driven.

``lines`` reads within limits, ``form`` knows the schema of each event, ``check`` judges, ``record`` writes what a run
exchanged. ``kv_events`` reads the field's own event streams; the modules ``record_*`` write logs of engines, and the
modules ``translate_*`` turn them into events.
"""

FORMAT = "kvassay-trace-v1"
"""The first member of a trace's header."""
