"""Kernels that are wrong on purpose: one edit of a file each, and the cases of the suite that see it.

They judge the suite like the faults of its contracts, and the tests of the kernels besides: a defect that no
conformance case can show, because it is one of memory or of order, names the sanitizer that reports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvassay_kernels import sources


@dataclass(frozen=True)
class Defect:
    """One edit."""

    name: str
    file: str
    right: str
    """Text of the file, where it stands once."""
    wrong: str
    killed_by: tuple[str, ...] = ()
    """Cases that the emulated engine fails with it, each."""
    reported_by: str = ""
    """The sanitizer that reports it, ``thread`` or ``address``."""
    seen_by: str = ""
    """The test of the kernels that sees it, where no case and no sanitizer does."""
    schedule: int = 0
    """The order of threads in which the cases see it."""

    @property
    def texts(self) -> dict[str, str]:
        """The file with its defect, by its name."""
        text = sources.read(self.file)
        found = text.count(self.right)
        assert found == 1, f"{self.name}: the text stands {found} times in {self.file}"
        return {self.file: text.replace(self.right, self.wrong)}


DEFECTS = (
    # --- attention.cu, by real shapes
    Defect(
        "attention-scores-read-before-they-are-written",
        "attention.cu",
        "        __syncwarp();\n\n        float found[SCORES]",
        "\n        float found[SCORES]",
        ("attention/real/bfloat16-d128-t4097", "attention/real/float32-d64-t4097-state"),
        "thread",
    ),
    Defect(
        "attention-masses-read-before-they-are-written",
        "attention.cu",
        "    }\n    __syncthreads();\n    float factor[G];",
        "    }\n    float factor[G];",
        ("attention/real/float16-d64-t4097",),
        "thread",
    ),
    Defect(
        "attention-tail-of-a-split-lost",
        "attention.cu",
        "start < end; start += WARPS * TILE",
        "start + TILE <= end; start += WARPS * TILE",
        ("attention/real/float32-d128-t4097", "attention/real/pages-of-16-bfloat16-t4097"),
    ),
    Defect(
        "attention-tile-for-the-key-head",
        "attention.cu",
        "k += sequence * k_sequence + head * k_head;",
        "k += sequence * k_sequence + (gridDim.y - 1 - head) * k_head;",
        ("attention/real/bfloat16-d128-t4097", "attention/real/float16-d64-split-in-two"),
    ),
    Defect(
        "attention-values-of-the-first-head",
        "attention.cu",
        "v += sequence * v_sequence + head * v_head;",
        "v += sequence * v_sequence;",
        ("attention/real/bfloat16-d128-t4097", "attention/real/float32-d64-t4097-window"),
    ),
    Defect(
        "attention-sums-not-rescaled",
        "attention.cu",
        "sum[c][g][e] *= factor;",
        "sum[c][g][e] *= 1.f;",
        ("attention/real/float32-d128-t4097", "attention/real/bfloat16-d128-t32768"),
    ),
    Defect(
        "attention-warps-added-unscaled",
        "attention.cu",
        "const float whole = factor[g] * lanes_sum",
        "const float whole = 1.f * lanes_sum",
        ("attention/real/float32-d128-t4097", "attention/real/float16-d64-t4097"),
    ),
    Defect(
        "attention-split-begins-a-row-late",
        "attention.cu",
        "const int begin = row_begin + split * rows_per_split,",
        "const int begin = row_begin + split * rows_per_split + (split > 0),",
        ("attention/real/float32-d128-t4097",),
    ),
    # --- rows.cuh, which both kernels of attention include
    Defect(
        "rows-one-beyond-the-last",
        "attention_any.cu",
        "locate(rows, legal, start + lane, end)",
        "locate(rows, legal, start + lane, end + 1)",
        ("attention/pages/rest-of-the-last-page",),
        "address",
    ),
    # --- attention_any.cu, by small shapes
    Defect(
        "any-minus-infinity-less-itself",
        "attention_any.cu",
        "const float base = most == MINUS_INFINITY ? 0.f : most;",
        "const float base = most;",
        seen_by="test_attention.py::test_a_partial_state_agrees_with_float64",
    ),
    Defect(
        "any-weights-read-before-they-are-written",
        "attention_any.cu",
        "        places[lane] = at;\n        __syncwarp();",
        "        places[lane] = at;",
        ("attention/dense/small-history", "attention/lengths/float32-around-32"),
        "thread",
    ),
    Defect(
        "any-query-head-for-the-key-head",
        "attention_any.cu",
        "k += sequence * k_sequence + head * k_head;",
        "k += sequence * k_sequence + member % (head + 1) * k_head;",
        ("attention/heads/grouped", "attention/heads/irregular"),
    ),
    Defect(
        "any-hidden-rows-weigh-nothing-but-are-read",
        "attention_any.cu",
        "                if (places[r].x < 0) continue;\n",
        "                if (places[r].x < 0 && weights[r] != 0.f) continue;\n",
        ("attention/mask/hidden-rows-are-nan",),
    ),
    # --- merge.cu
    Defect(
        "merge-minus-infinity-less-itself",
        "merge.cu",
        "const float base = most == MINUS_INFINITY ? 0.f : most;",
        "const float base = most;",
        ("attention/merge/two-empty-partitions", "attention/merge/three-empty-partitions"),
    ),
    Defect(
        "merge-batch-of-one-less",
        "merge.cu",
        "const int here = min(BATCH, count - start);",
        "const int here = min(BATCH - 1, count - start);",
        ("attention/merge/of-129-states", "attention/merge/of-257-states"),
    ),
    Defect(
        "merge-factors-read-before-they-are-written",
        "merge.cu",
        "                factors[i] = __expf(states.m(start + i)[head] - base);\n            __syncthreads();",
        "                factors[i] = __expf(states.m(start + i)[head] - base);",
        ("attention/merge/split-at-3",),
        "thread",
    ),
    # --- extrema.cu and scores.cu: Quest
    Defect(
        "extrema-last-page-as-if-full",
        "extrema.cu",
        "const int end = min(new_rows, (page + 1) * page_rows - old_rows);",
        "const int end = (page + 1) * page_rows - old_rows;",
        (),
        "address",
    ),
    Defect(
        "extrema-old-rows-forgotten",
        "extrema.cu",
        "if (page * page_rows < old_rows) {",
        "if (page * page_rows + 1 < old_rows) {",
        ("selectors/quest-append/one-by-one", "selectors/quest-append/from-one-row-on"),
    ),
    Defect(
        "bounds-by-the-maximum-alone",
        "scores.cu",
        "fmaf(q, q > 0.f ? high : low, sum)",
        "fmaf(q, high, sum)",
        ("selectors/quest-bounds/a-2", "selectors/quest-bounds/s-7"),
    ),
    Defect(
        "scores-of-the-first-head",
        "scores.cu",
        "const int64 at = row * row_stride + kv_head_of[member] * head_stride;",
        "const int64 at = row * row_stride;",
        ("selectors/quest-bounds/a-2",),
    ),
    Defect(
        "scores-first-head-of-wide-rows",
        "scores.cu",
        "    high += tile[0] * head_stride;",
        "    high += 0 * head_stride;",
        ("selectors/quest-bounds/r-16", "selectors/quest-bounds/s-7"),
    ),
    # --- sliced.cu: SparQ
    Defect(
        "sliced-temperature-of-the-first-head",
        "sliced.cu",
        "const float divisor = temperatures[members[g]];",
        "const float divisor = temperatures[members[0]];",
        ("selectors/sparq-proxy/a-2", "selectors/sparq-proxy/s-8"),
    ),
    Defect(
        "sliced-last-channel-left-out",
        "sliced.cu",
        "for (int i = 0; i < count; ++i) {",
        "for (int i = 0; i + 1 < count; ++i) {",
        ("selectors/sparq-proxy/a-2", "selectors/sparq-proxy/b-1"),
    ),
    # --- topk.cu
    Defect(
        "topk-negative-numbers-upside-down",
        "topk.cu",
        "return bits & 0x80000000u ? ~bits : bits | 0x80000000u;",
        "return bits & 0x80000000u ? bits & 0x7fffffffu : bits | 0x80000000u;",
        ("selectors/quest-pages/bounds-below-zero",),
    ),
    Defect(
        "topk-ties-to-the-last",
        "topk.cu",
        "key == least && rank < wanted",
        "key == least && rank >= histogram[least & 0xffu] - wanted",
        ("selectors/quest-pages/ties-all-equal",),
    ),
    # --- pq.cu
    Defect(
        "pq-table-of-another-part",
        "pq.cu",
        "table + (part * count + code) * QUERIES",
        "table + (part % 2 * count + code) * QUERIES",
        ("indexes/pq/score-odd-subspaces", "indexes/pq/score-wide"),
    ),
    Defect(
        "pq-last-code-left-out",
        "pq.cu",
        "if (part >= parts) break;",
        "if (part >= parts - (parts > 2)) break;",
        ("indexes/pq/score-odd-subspaces", "indexes/pq/real-size"),
    ),
    # --- lsh.cu and inclusion.cu: MagicPIG
    Defect(
        "signatures-in-reverse-order-of-bits",
        "lsh.cu",
        "(lanes_sum(sums[i], 8) > 0.f) << bit",
        "(lanes_sum(sums[i], 8) > 0.f) << (bits - 1 - bit)",
        ("indexes/magicpig/bits", "indexes/magicpig/buckets-many-bits"),
    ),
    Defect(
        "signatures-on-the-plane-are-set",
        "lsh.cu",
        "(lanes_sum(sums[i], 8) > 0.f) << bit",
        "(lanes_sum(sums[i], 8) >= 0.f) << bit",
        ("indexes/magicpig/bits",),
    ),
    Defect(
        "matches-of-the-first-table-twice",
        "lsh.cu",
        "code[0] = from[t * table_stride];",
        "code[0] = from[(t ? t - 1 : 0) * table_stride];",
        ("indexes/magicpig/one-or-two-tables",),
    ),
    Defect(
        "inclusion-ways-one-less",
        "inclusion.cu",
        "(n + 1) * run",
        "(n ? n : 1) * run",
        ("indexes/magicpig/probability-10-150", "indexes/magicpig/probability-8-75"),
    ),
    Defect(
        "inclusion-by-the-closed-form",
        "inclusion.cu",
        "const REAL both = least == 2 ? r * r * total : r * total;",
        "const REAL both = least == 2 ? 1 - run * (1 + (tables - least + 1) * r) : r * total;",
        ("indexes/magicpig/probability-in-the-tail",),
    ),
    # --- clusters.cu: SqueezedAttention
    Defect(
        "clusters-count-once",
        "clusters.cu",
        "sum = fmaf(sizes[i], __expf(z[i] - most), sum);",
        "sum += __expf(z[i] - most);",
        ("indexes/squeezed/share-one-query", "indexes/squeezed/share-a-large-cluster"),
    ),
    Defect(
        "clusters-maximum-read-before-it-is-written",
        "clusters.cu",
        "    if (lane == 0) room[warp] = most;\n    __syncthreads();",
        "    if (lane == 0) room[warp] = most;",
        (),
        "thread",
    ),
    # --- gather.cu
    Defect(
        "gather-tail-of-a-row-from-the-next",
        "gather.cu",
        "row * row_stride + at % units",
        "row * row_stride + (at + 1) % units",
        ("indexes/search/held-out-wide-exact",),
    ),
    Defect(
        "gather-row-without-check",
        "gather.cu",
        "if (row >= 0 && row < rows) moved[i]",
        "moved[i]",
        (),
        "address",
    ),
)
"""In the order of the files."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels" / "defects.md"


def page() -> str:
    """The table of the documentation."""
    lines = [
        "# Seeded defects",
        "",
        "Each is one edit of a kernel, in `tests/kernels/defects.py`. `nox -s kernels` puts it in, runs the emulated",
        "engine on the cases named here, and fails where one of them passes. A defect of memory or of order is put",
        "before its sanitizer besides.",
        "`python -m tests.kernels.defects` writes this page.",
        "",
        "| defect | file | seen by |",
        "|---|---|---|",
    ]
    for defect in DEFECTS:
        seen = [f"`{case}`" for case in defect.killed_by]
        if defect.reported_by:
            seen.append({"thread": "ThreadSanitizer", "address": "AddressSanitizer"}[defect.reported_by])
        if defect.seen_by:
            seen.append(f"`tests/kernels/{defect.seen_by}`")
        lines.append(f"| {defect.name} | `{defect.file}` | {', '.join(seen)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
