"""Selectors that attend to a part of the history: SparQ, Quest and InfiniGen.

Each is a class whose methods are the steps of its chapter, so that a step can be read, tested and replaced alone. One
source for NumPy, Torch and CuPy arrays. The chapter ``spec/selectors.md`` derives everything here; its sources are the
sections 05 to 06E of the article.
"""
