"""The corpus of facts about drivers: in a slice as many hold as bare."""

import re
import subprocess

from checks import TESTS, absent, fact, fail


def main():
    if not (TESTS / "facts").exists():
        absent("tests/facts is not in this tree")
    done = subprocess.run([TESTS / "facts"], capture_output=True, text=True, timeout=300)
    lines = done.stdout.strip().splitlines()
    counted = re.search(r"(\d+) passed, (\d+) failed, (\d+) absent, .*\(CUDA (\d+)\)", lines[-1] if lines else "")
    if not counted:
        fail(f"no summary: {done.stderr.strip()[-200:]}")
    passed, failed, lacking, version = map(int, counted.groups())
    fact("version", f"CUDA {version // 1000}.{version % 1000 // 10}")
    fact("same", f"{passed} hold, {failed} do not, {lacking} absent")
    for line in lines:
        if line.startswith("FAILED"):
            fact("same", line.split(":")[0])


main()
