"""Short histories that defects hide in, as words; what stands between them is left to chance.

A word is an act on one key, ``put`` or ``read``, or with a number one on a transaction: ``load1`` begins the first,
``copy1`` moves its bytes. Now and then a word is left out, or something else happens after it, so that a pattern stands
for its neighbours, too. :data:`WORDS` of :mod:`kvassay.fuzz.residency_words` says what each means.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One history."""

    name: str
    weight: int
    words: str
    needs: frozenset[str] = frozenset()
    """Capabilities of residency without which it shows nothing."""


def pattern(name: str, weight: int, words: str, *needs: str) -> Pattern:
    """A row."""
    return Pattern(name, weight, words, frozenset(needs))


PATTERNS = (
    # what one transaction leaves to the next of the same key
    pattern("store-again", 2, "store1 half1 cancel1 store2 copy1 complete1 copy2 fill done2 read", "cancel"),
    pattern("load-again", 2, "bring load1 half1 cancel1 load2 complete1 remove fill copy2 done2 read", "cancel_load"),
    pattern("cancelled-twice", 2, "store1 half1 cancel1 store2 cancel1 copy2 done2 read complete1 read", "cancel"),
    pattern("told-twice", 2, "bring load1 copy1 done1 load2 complete1 remove fill copy2 done2 read", "txn_ids"),
    pattern("failed-and-again", 2, "store1 copy1 fail1 look store2 copy2 complete1 done2 read"),
    pattern("overtaken", 2, "bring load1 half1 store2 copy2 done2 load3 copy1 complete1 copy3 complete3 look"),
    pattern("put-in-between", 2, "bring load1 half1 put load2 copy1 complete1 copy2 complete2 look"),
    pattern("side-by-side", 2, "store1 store-other2 copy1 copy2 done1 done2 look"),
    # limits of time, counted from the beginning of each
    pattern("store-expires", 2, "store1 wait half1 wait store2 copy2 complete2 copy1 complete1 read", "expiry_write"),
    pattern("load-expires", 2, "bring load1 wait half1 wait remove fill complete1 fill read", "expiry_read"),
    pattern("one-expires", 2, "bring store-other1 wait load2 wait remove store-other3 complete1 complete2 look"),
    pattern("in-time", 1, "bring load1 wait store-other2 copy1 copy2 remove complete1 complete2 look"),
    # waiting for the copy of another
    pattern("waiter", 3, "bring-host load1 load2 copy1 copy2 complete1 copy2 complete2 read", "joins"),
    pattern(
        "waiter-of-damage", 2, "bring-host load1 load2 corrupt copy1 copy2 complete1 copy2 complete2 read", "joins"
    ),
    pattern(
        "waiter-left", 2, "bring-host load1 load2 cancel1 load3 copy1 complete1 copy2 complete2 remove read", "joins"
    ),
    # several keys in one transaction, of which some are there already
    pattern("store-of-some", 2, "bring-host store-rest1 copy1 fail-last1 look", "replaces"),
    pattern("load-of-some", 2, "bring-all put load-all1 copy1 fail-last1 look"),
    pattern("all-at-once", 1, "store-all1 store2 copy1 fail-last1 copy2 complete2 look load-all3 copy3 done3 look"),
    # replicas in several tiers, and which of them may go
    pattern("demotion", 3, "put store-same1 copy1 release-device done1 tiers release-device tiers look", "authority"),
    pattern("promotion", 3, "bring-host load1 copy1 release-host done1 tiers release-host tiers look", "authority"),
    pattern("damaged-replica", 3, "put store-same1 copy1 done1 corrupt read tiers release-any look", "authority"),
    pattern(
        "damaged-source", 3, "bring-host load1 corrupt copy1 done1 put release-any load2 copy2 done2 look", "authority"
    ),
    pattern("release-of-several", 3, "put store-same1 copy1 done1 put-other release-both tiers look", "authority"),
    pattern(
        "three-replicas",
        3,
        "put fill load1 copy1 done1 store-same2 copy2 done2 "
        "release-device corrupt load3 copy3 done3 release-below read",
        *("authority", "secondary"),
    ),
    # below
    pattern("from-below", 2, "put put-other fill read load1 half1 fill copy1 complete1 fill look", "secondary"),
    pattern("damaged-below", 2, "put fill damage read load1 copy1 complete1 look", "secondary"),
    pattern("removed-below", 1, "put fill load1 copy1 done1 remove fill look put fill look", "secondary"),
)
