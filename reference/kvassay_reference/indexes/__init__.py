"""Indexed retrieval: PQCache, RetrievalAttention, SqueezedAttention, MagicPIG, and the life of an index.

Each method searches something smaller than the rows and attends to the rows themselves. ``rows`` holds what they share,
``store`` the life of rows and entries, ``record`` the rules of retrieval records, and each method has a module of its
own. The chapter ``spec/indexes.md`` derives everything here; its sources are sections 07 to 07J of the article.
"""
