"""Curves on two logarithmic axes as SVG: a panel a shape, a line a series."""

import html
import math

COLUMNS, WIDTH, HEIGHT = 4, 300, 230
LEFT, TOP, RIGHT, BOTTOM = 46, 36, 10, 30  # margins of a panel
COLOURS = {"all": "#000000", "tile": "#e69f00", "schedule": "#56b4e9", "insert-sync": "#d55e00", "prune-sync": "#cc79a7",
           "share-slots": "#8b6914", "verify": "#0072b2", "the rest": "#009e73", "before": "#999999"}


def decades(values):
    return math.floor(math.log10(min(values))), max(math.ceil(math.log10(max(values))), math.floor(math.log10(min(values))) + 1)


def text(x, y, words, size=10, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{html.escape(words)}</text>'


def power(n):
    return f"{10**n:,}" if 0 <= n <= 3 else f"{10.0**n:g}" if n < 0 else f"1e{n}"


def panel(x0, y0, title, subtitle, series, colours, unit):
    """`series`: name -> list of (x, y), above 0: tasks and seconds, say."""
    out = [text(x0 + LEFT, y0 + 14, title, 12, "start"), text(x0 + LEFT, y0 + 28, subtitle, 10, "start")]
    points = [p for line in series.values() for p in line]
    left, top, right, bottom = x0 + LEFT, y0 + TOP, x0 + WIDTH - RIGHT, y0 + HEIGHT - BOTTOM
    if not points:
        return out + [text((left + right) / 2, (top + bottom) / 2, "no run ended")]
    (x_from, x_to), (y_from, y_to) = decades([p[0] for p in points]), decades([p[1] for p in points])

    def at(tasks, seconds):
        return (left + (math.log10(tasks) - x_from) / (x_to - x_from) * (right - left),
                bottom - (math.log10(seconds) - y_from) / (y_to - y_from) * (bottom - top))

    for n in range(x_from, x_to + 1):
        x = at(10.0**n, 10.0**y_from)[0]
        out += [f'<path d="M{x:.1f} {top}V{bottom}" stroke="#ddd"/>', text(x, bottom + 12, power(n))]
    for n in range(y_from, y_to + 1):
        y = at(10.0**x_from, 10.0**n)[1]
        out += [f'<path d="M{left} {y:.1f}H{right}" stroke="#ddd"/>', text(left - 4, y + 3, power(n) + unit, 10, "end")]
    for name, line in series.items():
        colour, dashes = colours[name], ' stroke-dasharray="4 3"' if name == "before" else ""
        places = [at(*p) for p in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in places]
    return out


def draw(title, panels, colours=None, unit=" s"):
    """The text of an SVG. `panels`: list of (title, subtitle, series); `colours`: of the series; `unit`: of the upright axis."""
    colours = colours or COLOURS
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * WIDTH, 50 + rows * HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>', text(10, 20, title, 13, "start")]
    x = 10
    for name, colour in colours.items():
        out += [f'<path d="M{x} 36h18" stroke="{colour}" stroke-width="2"/>', text(x + 22, 40, name, 11, "start")]
        x += 50 + 7 * len(name)
    for i, (name, subtitle, series) in enumerate(panels):
        out += panel(i % COLUMNS * WIDTH, 50 + i // COLUMNS * HEIGHT, name, subtitle, series, colours, unit)
    return "\n".join(out + ["</svg>", ""])
