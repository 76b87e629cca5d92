"""A drawing of slices over time, as an SVG: a lane for each GPU, and in it a bar for each slice, as high as its part of the GPU."""

from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP = 1120, 96, 28, 92
LANE, GAP, WAITING, FEET = 72, 10, 58, 50
# The palette of Okabe and Ito, which stays distinct with any colour blindness; the pods of one GPU have related colours.
COLOURS = {"train-60": "#0072b2", "train-40": "#56b4e9", "infer-50": "#d55e00", "infer-30": "#e69f00", "infer-20": "#f0e442",
           "one-gpu": "#cc79a7", "two-gpus": "#009e73", "four-gpus": "#595959"}
INK, QUIET, LINE, EMPTY = "#1a1a1a", "#595959", "#d9d9d9", "#f5f5f5"
# Mean width of a bold character of a wide sans-serif font, in parts of its size.
CHARACTER = 0.61


def draw(report):
    """The drawing of a report of demo.py."""
    pods, gpus = report["pods"], report["gpus"]
    # Some room behind the last end.
    span = 1.02 * max(pod["end_s"] for pod in pods)
    x = lambda moment: LEFT + moment / span * (WIDTH - LEFT - RIGHT)
    y = lambda lane: TOP + lane * (LANE + GAP)
    bottom = y(gpus) + WAITING
    parts = [*head(report, bottom + FEET), *axis(span, x, bottom), *waits(report, x, y(gpus) + 4)]
    for gpu in range(gpus):
        parts += lane(gpu, [pod for pod in pods if gpu in pod["gpus"]], x, y(gpu))
    return "\n".join([*parts, "</svg>"]) + "\n"


def head(report, height):
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<defs><pattern id="waits" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="8" height="8" fill="white"/><rect width="3" height="8" fill="{COLOURS["four-gpus"]}"/></pattern></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(LEFT, 34, f"Eight pods with resource claims on a Kubernetes node of {report['gpus']} GPUs", size=19, weight="bold"),
        text(LEFT, 57, f"{report['device']}, SIMULATED: kernels take time and compute nothing. A bar is a slice, as high as the part of the GPU "
             "that it is promised.", colour=QUIET, size=13),
    ]


def axis(span, x, bottom):
    """The seconds, with a line for each five."""
    parts = []
    for moment in range(0, int(span) + 1, 5):
        parts.append(f'<line x1="{x(moment):.1f}" y1="{TOP - 8}" x2="{x(moment):.1f}" y2="{bottom:.1f}" stroke="{LINE}"/>')
        parts.append(text(x(moment), bottom + 18, str(moment), anchor="middle", colour=QUIET))
    return [*parts, text(WIDTH - RIGHT, bottom + 36, "seconds since the first pod was created", anchor="end", colour=QUIET)]


def lane(gpu, pods, x, top):
    """A GPU's lane: its slices on top of each other, the largest below."""
    parts = [
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}" fill="{EMPTY}" fill-opacity="0.7"/>',
        text(LEFT - 12, top + LANE / 2 + 5, f"GPU {gpu}", anchor="end", size=14, weight="bold"),
    ]
    for pod in pods:
        beside = [other for other in pods if other["begin_s"] < pod["end_s"] and pod["begin_s"] < other["end_s"]]
        below = sum(other["permille"] for other in beside if other["permille"] > pod["permille"])
        height = LANE * pod["permille"] / 1000
        parts += bar(pod, x(pod["begin_s"]), x(pod["end_s"]), top + LANE * (1 - below / 1000) - height, height)
    return parts


def bar(pod, begin, end, top, height):
    """A slice's bar, with its pod, size, memory and share of the GPU time."""
    colour, size = COLOURS[pod["name"]], min(13, height - 2)
    middle = top + height / 2 + size * 0.36
    part = f'{pod["permille"] / 1000:g} of it' if pod["permille"] < 1000 else f'1 of its {pod["count"]}' if pod["count"] > 1 else "all of it"
    parts = [
        f'<rect x="{begin:.1f}" y="{top:.1f}" width="{end - begin:.1f}" height="{height:.1f}" fill="{colour}" stroke="white" stroke-width="1.2">'
        f'<title>{pod["name"]}, {pod["begin_s"]} to {pod["end_s"]} s</title></rect>',
        text(begin + 8, middle, pod["name"], f'{part}, sees {" ".join(map(str, pod["total_mib"]))} MiB', colour=on(colour), size=size, weight="bold"),
    ]
    if pod["share_permille"] is not None:
        share = f'{pod["share_permille"] / 10:.1f} % of the GPU time used'
        parts.append(text(end - 8, middle, share, colour=on(colour), size=size, anchor="end"))
    return parts


def waits(report, x, top):
    """The pod that waits, until its slice begins, with the scheduler's reason."""
    [pod] = [pod for pod in report["pods"] if pod["name"] == report["waits"]]
    begin, end, colour = x(pod["asked_s"]), x(pod["begin_s"]), COLOURS[pod["name"]]
    words = f'{pod["name"]} waits for {pod["begin_s"] - pod["asked_s"]:.1f} s'
    return [
        text(LEFT - 12, top + 16, "Pending", anchor="end", size=14, weight="bold"),
        f'<line x1="{end:.1f}" y1="{TOP - 8}" x2="{end:.1f}" y2="{top + 22}" stroke="{colour}" stroke-dasharray="4 3"/>',
        f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="22" fill="url(#waits)" stroke="{colour}"/>',
        f'<rect x="{begin + 7:.1f}" y="{top + 3}" width="{len(words) * 13 * CHARACTER:.1f}" height="16" fill="white"/>',
        text(begin + 12, top + 16, words, size=13, weight="bold"),
        # Its first sentence. What follows is about preemption.
        '<g stroke="white" stroke-width="5" paint-order="stroke">',
        text(begin, top + 40, f'kube-scheduler: {report["reason"].split(". ")[0]}', colour=QUIET), "</g>",
    ]


def text(left, base, words, more="", anchor="start", colour=INK, size=12, weight="normal"):
    """Words at a place, and further ones in the usual weight."""
    rest = f'<tspan dx="10" font-weight="normal">{escape(more)}</tspan>' if more else ""
    return (f'<text x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size:g}" '
            f'font-weight="{weight}">{escape(words)}{rest}</text>')


def on(colour):
    """White or black: the one with the higher contrast to a colour."""
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"
