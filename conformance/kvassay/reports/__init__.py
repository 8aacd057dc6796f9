"""Reports: one document (``schemas/report.json``) and the forms that are drawn from it.

``document`` turns results into plain JSON with shortened tensors; ``terminal``, ``html`` and ``junit`` draw that
document and know nothing else, so a stored report can be drawn again at any time.
"""
