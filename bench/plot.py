# SPDX-License-Identifier: Apache-2.0
"""Goodput against the number of CPU machines, as SVG: what Tally reached and what can be."""
from rows import PAYLOAD, ring, t_opt

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
GRID = 6        # lines up to 1.2 of the card's rate
COLOURS = {"Tally": "#c1121f", "t_opt": "#333333", "ring": "#2a6f97", "Gloo": "#588157"}


class Axes:
    def __init__(self, k_max, y_max):
        self.k_max, self.y_max = k_max, y_max

    def x(self, k):
        return LEFT + (WIDTH - LEFT - RIGHT) * k / self.k_max

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.y_max

    def points(self, curve):
        return " ".join(f"{self.x(k):.1f},{self.y(v):.1f}" for k, v in curve)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{words}</text>'


def line(axes, curve, colour, dashes=""):
    return (f'<polyline points="{axes.points(curve)}" fill="none" stroke="{colour}" '
            f'stroke-width="2" stroke-dasharray="{dashes}"/>')


def grid(axes):
    step = axes.y_max / GRID
    for i in range(GRID + 1):
        y = axes.y(i * step)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(LEFT - 8, y + 4, f"{i * step:.2f}", "end")
    for k in range(axes.k_max + 1):
        yield text(axes.x(k), HEIGHT - BOTTOM + 18, k)


def legend(entries):
    for i, (name, words) in enumerate(entries):
        y = HEIGHT - BOTTOM - 16 - 18 * i
        yield f'<rect x="{WIDTH - 250}" y="{y - 9}" width="14" height="4" fill="{COLOURS[name]}"/>'
        yield text(WIDTH - 230, y - 3, words, "start")


def goodput(n, size, card, tally, gloo=None):
    """tally: k -> seconds of a round of `size` bytes; gloo: seconds, whatever k.  SVG."""
    def gbit(seconds):
        return size * 8 / seconds / 1e9

    axes = Axes(n, 1.2 * card / PAYLOAD * 8 / 1e9)
    measured = [(k, gbit(s)) for k, s in sorted(tally.items())]
    best = [(i / 20, gbit(t_opt(n, i / 20, size, card))) for i in range(20 * n + 1)]
    flat = gbit(ring(n, size, card))
    entries = [("Tally", "Tally, measured"), ("t_opt", "M / t_opt: no scheme is faster"),
               ("ring", "ring all-reduce, at its best")]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *grid(axes),
             line(axes, best, COLOURS["t_opt"]),
             line(axes, [(0, flat), (n, flat)], COLOURS["ring"], "6 4")]
    if gloo:
        entries.append(("Gloo", "Gloo, measured"))
        parts.append(line(axes, [(0, gbit(gloo)), (n, gbit(gloo))], COLOURS["Gloo"], "2 4"))
    parts.append(line(axes, measured, COLOURS["Tally"]))
    parts += [f'<circle cx="{axes.x(k):.1f}" cy="{axes.y(v):.1f}" r="4" '
              f'fill="{COLOURS["Tally"]}"/>' for k, v in measured]
    parts += legend(entries)
    parts += [text(WIDTH / 2, 22, f"Goodput of {n} GPU machines, {size >> 20} MiB, "
                   f"cards of {card * 8 / 1e9:.3f} Gbit/s of payload", more='font-size="14"'),
              text(WIDTH / 2, HEIGHT - 12, "CPU machines k"),
              text(16, HEIGHT / 2, "Gbit/s",
                   more=f'transform="rotate(-90 16 {HEIGHT / 2})"'), "</svg>"]
    return "\n".join(parts) + "\n"
