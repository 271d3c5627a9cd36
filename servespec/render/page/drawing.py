"""Charts as static SVG, drawn by Vega-Lite from a specification; nothing is fetched and nothing runs in the page."""

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from servespec.render.page.markup import Markup, element

Chart = Mapping[str, Any]

WIDE_PIXELS, NARROW_PIXELS = 760, 340
_VEGA_LITE = "6.1"
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": "var(--line)"},
    "axis": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": "var(--line)",
        "domainColor": "var(--muted)",
        "tickColor": "var(--muted)",
    },
    "text": {"color": "var(--ink)", "fontSize": 12},
}


def is_installed() -> bool:
    """Whether the `page` extra is here."""
    return find_spec("vl_convert") is not None


def figure(caption: str, chart_of: Callable[[int], Chart], said: str = "") -> Markup:
    """A chart for wide and one for narrow screens, of which the page shows one.

    ``chart_of`` takes the width in pixels that there is; ``said`` is for who sees neither, the caption where it is ''.
    """
    drawn = (
        element("div", svg(chart_of(width)), class_=kind, role="img", aria_label=said or caption)
        for kind, width in (("wide", WIDE_PIXELS), ("narrow", NARROW_PIXELS))
    )
    return element("figure", element("figcaption", caption), *drawn)


def svg(chart: Chart) -> Markup:
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(
        {**chart, "config": _CONFIG, "autosize": {"type": "fit", "contains": "padding"}},
        vl_version=_VEGA_LITE,
        allowed_base_urls=[],
    )
    return Markup(_slim(drawn).replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1))


_NEEDLESS = re.compile(
    r' (?:aria-[a-z]+|role|class|opacity|pointer-events|version|xmlns(?::xlink)?|font-family|font-size)="[^"<>]*"'
    r'|(?<=<text)(?P<kept>[^<>]*) fill="var\(--ink\)"| stroke-width="1"'
    r'|<path[^<>]* d=""[^<>]*/>'
)
_DRAWN = re.compile(r' (?:d|transform)="[^"]*"')
_FRACTION = re.compile(r"(\.\d)\d+")


def _slim(drawn: str) -> str:
    """Without what the page says itself, does not use or cannot show: a drawing is hidden from whom its words reach,
    and a tenth of a pixel is fine enough.  Texts stay as they are."""
    kept = _NEEDLESS.sub(lambda found: found["kept"] or "", drawn)
    return _DRAWN.sub(lambda found: _FRACTION.sub(r"\1", found[0]), kept)
