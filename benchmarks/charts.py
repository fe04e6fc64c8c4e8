"""Line charts as SVG, both axes logarithmic; nothing but text is needed for them."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

#: Pixels of one chart, of its margins, and how many stand side by side.
_WIDE: Final = 420
_HIGH: Final = 280
_LEFT: Final = 58
_RIGHT: Final = 16
_TOP: Final = 34
_BOTTOM: Final = 44
_ROW: Final = 2
_COLORS: Final = ("#1f5fa8", "#c2410c", "#3f7d20", "#7c3aad")


class Chart(NamedTuple):
    """One chart.

    Attributes:
        across, up: what the axes are.
        lines: (name, points (x, y), both positive).
        budget: a y that is not to be exceeded.
    """

    title: str
    across: str
    up: str
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    budget: float | None = None


def svg(charts: Sequence[Chart]) -> str:
    """All charts as one picture."""
    columns = min(_ROW, len(charts))
    rows = -(-len(charts) // _ROW)
    wide, high = columns * _WIDE, rows * _HIGH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
    ]
    for place, chart in enumerate(charts):
        left, top = place % _ROW * _WIDE, place // _ROW * _HIGH
        parts.append(f'<g transform="translate({left},{top})">{_chart(chart)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _chart(chart: Chart) -> str:
    points = [point for _, line in chart.lines for point in line]
    ups = [y for _, y in points] + ([chart.budget] if chart.budget else [])
    low_x, high_x = _decades([x for x, _ in points])
    low_y, high_y = _decades(ups)

    def at_x(x: float) -> float:
        return _LEFT + (math.log10(x) - low_x) / (high_x - low_x) * (_WIDE - _LEFT - _RIGHT)

    def at_y(y: float) -> float:
        return _HIGH - _BOTTOM - (math.log10(y) - low_y) / (high_y - low_y) * (_HIGH - _TOP - _BOTTOM)

    right, bottom = _WIDE - _RIGHT, _HIGH - _BOTTOM
    parts = [_text(_LEFT, 16, chart.title, "start", ' font-weight="bold"')]
    for power in range(low_x, high_x + 1):
        x = at_x(10.0**power)
        parts += [_line(x, _TOP, x, bottom, "#ddd"), _text(x, bottom + 14, f"{10**power:,}")]
    for power in range(low_y, high_y + 1):
        y = at_y(10.0**power)
        name = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
        parts += [_line(_LEFT, y, right, y, "#ddd"), _text(_LEFT - 5, y + 4, name, "end")]
    parts += [
        _text((_LEFT + right) / 2, bottom + 32, chart.across),
        _text(
            14, (_TOP + bottom) / 2, chart.up, "middle", f' transform="rotate(-90 14 {(_TOP + bottom) / 2})"'
        ),
    ]
    if chart.budget:
        y = at_y(chart.budget)
        parts.append(_line(_LEFT, y, right, y, "#888", ' stroke-dasharray="5 4"'))
        parts.append(_text(right - 2, y - 4, f"budget {chart.budget:g}", "end"))
    for number, (name, line) in enumerate(chart.lines):
        color = _COLORS[number % len(_COLORS)]
        places = [(round(at_x(x), 1), round(at_y(y), 1)) for x, y in line]
        listed = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{listed}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.6" fill="{color}"/>' for x, y in places]
        parts.append(_text(_LEFT + 8, _TOP + 12 + 14 * number, name, "start", f' fill="{color}"'))
    return "".join(parts)


def _decades(numbers: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around the numbers."""
    low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))
    return low, max(high, low + 1)


def _line(x: float, y: float, to_x: float, to_y: float, color: str, more: str = "") -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
