#!/usr/bin/env python3
"""Adds up JUnit files and prints one line: N passed, N failed, N skipped.

Fails if a file is missing, or if a test failed, or if none ran.
"""

import sys
import xml.etree.ElementTree as ElementTree


def main():
    n_passed = n_failed = n_skipped = 0
    for path in sys.argv[1:]:
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"count_tests: {path}: {error}")
            n_failed += 1
            continue
        for case in cases:
            # CTest writes the outcome to `status` as well as to a child element.
            if case.find("failure") is not None or case.find("error") is not None:
                n_failed += 1
            elif case.find("skipped") is not None or case.get("status") in ("disabled", "notrun"):
                n_skipped += 1
            else:
                n_passed += 1
    skipped = f", {n_skipped} skipped" if n_skipped else ""
    print(f"{n_passed} passed, {n_failed} failed{skipped}")
    return 1 if n_failed or not n_passed else 0


if __name__ == "__main__":
    sys.exit(main())
