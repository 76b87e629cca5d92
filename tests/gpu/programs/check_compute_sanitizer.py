"""compute-sanitizer: a C program of the driver API runs under it."""

import re

from checks import TESTS, command, fact, fail, output


def main():
    sanitizer = command("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
    version = re.search(r"[Vv]ersion ([\d.]+)", output(sanitizer, "--version"))
    fact("version", version.group(1) if version else "unknown")
    # An allocation beyond the GPU is part of the client, and no defect of it.
    shown = output(sanitizer, "--tool", "memcheck", "--report-api-errors", "no", TESTS / "linked", seconds=80)
    if "ERROR SUMMARY: 0 errors" not in shown:
        fail(shown.strip().splitlines()[-1] if shown.strip() else "no summary")


main()
