"""Fuzzing of stateful contracts: sequences of calls that nobody wrote, judged after each call.

A contract brings a *scene*: what has happened since the engine was opened, rules that make the next call from it, and
an account that says which reply is wrong. The rest is the same for all: a seed chooses, a trial makes the calls, a
failure is shrunk to a few steps and written as a case that ``kvassay run`` replays. :mod:`kvassay.fuzz.machine` gives
the same scene to Hypothesis, for an engine's own tests.
"""
