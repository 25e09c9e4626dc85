"""Which share of what takes longest a run of tests has: MACO_TEST_PART, as tools/test.sh sets it ("2/3": the second of three parts)."""

import os
import re
import sys


def part():
    """Index and number of parts; all is the one of one."""
    text = os.environ.get("MACO_TEST_PART") or "1/1"
    fits = re.fullmatch(r"(\d+)/(\d+)", text)
    if not fits or not 1 <= int(fits[1]) <= int(fits[2]) or int(fits[2]) % 2 == 0:
        sys.exit(f"MACO_TEST_PART is '{text}': write a part and their odd number, as in 2/3")
    return int(fits[1]) - 1, int(fits[2])


def mine(items):
    """Those of this part; what it leaves out is said."""
    index, of = part()
    items = list(items)
    kept = items[index::of]
    if of > 1:
        print(f"part {index + 1}/{of}: {len(kept)} of {len(items)}")
    return kept
