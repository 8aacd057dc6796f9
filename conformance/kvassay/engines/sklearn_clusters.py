"""scikit-learn's k-means as the clustering of SqueezedAttention.

``requirements/ann.txt`` installs what this module needs.
"""

from __future__ import annotations

import warnings
from typing import Any

import sklearn
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from ..adapters.base import EngineAdapter, EngineInfo, Unsupported
from ._clusters import Request, means_of_raw_keys, unit_rows

ADAPTERS = {"sklearn": "SklearnKMeans"}
"""Names of the adapters here, and their classes; read without an import."""


class SklearnKMeans(EngineAdapter):
    """``KMeans`` from given rows on keys of unit length; the means of raw keys are the adapter's."""

    engine = EngineInfo(
        "sklearn.cluster.KMeans",
        sklearn.__version__,
        "https://scikit-learn.org",
        "Python",
        "algorithm lloyd, n_init 1, tol 0; labels are its own, means of raw keys the adapter's",
    )

    def squeezed_build(self, request: Request) -> dict[str, Any]:
        """Labels from Lloyd's rounds."""
        if "init_rows" not in request:
            raise Unsupported("labels are what a clustering makes")
        if not request["iterations"]:
            raise Unsupported("one round at least")
        points = unit_rows(request["keys"])
        made = KMeans(
            request["clusters"],
            init=points[request["init_rows"]],
            n_init=1,
            max_iter=request["iterations"],
            tol=0,
            algorithm="lloyd",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = made.fit(points).labels_
        return means_of_raw_keys(request, labels)
