"""nvidia-smi: the table and the query."""

from checks import MIB, command, fact, output


def main():
    smi = command("nvidia-smi")
    output(smi)
    line = output(smi, "--query-gpu=driver_version,memory.total", "--format=csv,noheader,nounits").splitlines()[0]
    version, total = (part.strip() for part in line.split(","))
    fact("version", version)
    fact("memory", int(total) * MIB, "about")


main()
