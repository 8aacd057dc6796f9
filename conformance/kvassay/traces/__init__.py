"""Traces: what an engine did, one JSON line per call, held to the same rules as an engine that is driven.

``lines`` reads within limits, ``form`` knows the schema of each event, ``check`` judges, ``record`` writes what a run
exchanges. The field's own event streams are read by ``kv_events`` and the modules ``translate_*``.
"""
