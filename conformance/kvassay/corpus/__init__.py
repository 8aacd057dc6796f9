"""The corpus on disk: where the data lie, how they are read, validated, selected and linted."""

from .errors import CorpusError
from .load import Capability, Corpus, Profile, load

__all__ = ["Capability", "Corpus", "CorpusError", "Profile", "load"]
