"""Nsight Systems: a C program of the driver API runs under its tracer."""

from checks import TESTS, command, fact, fail, folder, output


def main():
    nsys = command("nsys")
    fact("version", output(nsys, "--version").strip().split()[-1])
    made, place = folder()
    output(nsys, "profile", "--trace=cuda", "--sample=none", "-o", place / "trace", TESTS / "linked", seconds=80)
    if not list(place.glob("trace*")):
        fail("no trace was written")
    made.cleanup()


main()
