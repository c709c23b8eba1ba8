"""The rewards of a run as a picture (SVG), written by hand: no plotting library is needed for three lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

Point = tuple[float, float]

_WIDTH: Final = 720
_HEIGHT: Final = 360
_LEFT: Final = 56
_RIGHT: Final = 16
_TOP: Final = 40
_BOTTOM: Final = 48
_COLOURS: Final = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626")
_SMOOTHED: Final = 5


def smoothed(values: Sequence[float], window: int = _SMOOTHED) -> list[float]:
    """Return the mean of each value and those before it in the window."""
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [sum(part) / len(part) for part in parts]


def drawn(training: Mapping[str, Sequence[Point]], held_out: Mapping[str, Sequence[Point]], *, title: str) -> str:
    """Draw one line per seed (minutes, mean reward), and a dot for each evaluation on held-out tasks."""
    longest = max((x for points in training.values() for x, _ in points), default=1.0)
    body = [*_frame(longest, title)]
    for (name, points), colour in zip(training.items(), _COLOURS, strict=False):
        body.append(_line(points, longest, colour))
        body += [_dot(point, longest, colour) for point in held_out.get(name, ())]
    body += _legend(list(training))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>', *body, "</svg>", ""])


def _placed(point: Point, longest: float) -> Point:
    x = _LEFT + point[0] / longest * (_WIDTH - _LEFT - _RIGHT)
    y = _HEIGHT - _BOTTOM - point[1] * (_HEIGHT - _TOP - _BOTTOM)
    return round(x, 1), round(y, 1)


def _line(points: Sequence[Point], longest: float, colour: str) -> str:
    values = smoothed([reward for _, reward in points])
    placed = [_placed((minute, value), longest) for (minute, _), value in zip(points, values, strict=True)]
    path = " ".join(f"{x},{y}" for x, y in placed)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _dot(point: Point, longest: float, colour: str) -> str:
    x, y = _placed((min(point[0], longest), point[1]), longest)
    return f'<circle cx="{x}" cy="{y}" r="5" fill="white" stroke="{colour}" stroke-width="2.5"/>'


def _frame(longest: float, title: str) -> list[str]:
    parts = [_text(_WIDTH / 2, 22, title, size=15)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        (left, y), (right, _) = _placed((0, share), longest), _placed((longest, share), longest)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(left - 8, y + 4, f"{share:g}", anchor="end"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _placed((share * longest, 0), longest)
        parts.append(_text(x, y + 18, f"{share * longest:.1f}"))
    parts.append(_text(_WIDTH / 2, _HEIGHT - 10, "minutes of training"))
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(zip(names, _COLOURS, strict=False)):
        y = _HEIGHT - _BOTTOM - 14 - 18 * number
        parts.append(f'<rect x="{_WIDTH - 250}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        parts.append(_text(_WIDTH - 226, y - 3, f"{name}; circles: held-out tasks", anchor="start"))
    return parts


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="#333">{text}</text>'
