"""The corpus on disk: where the data lie, how they are read, validated, selected and linted."""

from .errors import CorpusError
from .load import Corpus, load
from .registries import Capability, Profile, Variant

__all__ = ["Capability", "Corpus", "CorpusError", "Profile", "Variant", "load"]
