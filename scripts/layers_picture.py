"""Draws docs/images/layers.svg: the packages of python/gpusize in their layers, with the first line of each docstring.

python -m scripts.layers_picture
"""

from __future__ import annotations

import ast
import sys
from html import escape
from pathlib import Path
from typing import Final

from scripts.layers import LAYERS, ROOT

PICTURE: Final = ROOT.parents[1] / "docs" / "images" / "layers.svg"

WIDTH, ROW, GAP, LABEL = 900, 34, 8, 120
STYLE: Final = """
text{font:14px ui-sans-serif,system-ui,sans-serif;fill:#1f2937}
.name{font-weight:600}
rect{fill:#eef2ff;stroke:#6366f1}
path{stroke:#6366f1;fill:none}
@media(prefers-color-scheme:dark){text{fill:#e5e7eb}rect{fill:#1e1b4b;stroke:#818cf8}path{stroke:#818cf8}}
"""


def purpose(package: str) -> str:
    """What a package is for: the first line of its docstring."""
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))) or ""
    return docstring.partition("\n")[0]


def picture() -> str:
    """The SVG: one box a package, from the top down; an arrow at the side says which way imports point."""
    boxes = []
    y = GAP
    for names in LAYERS:
        for name in names:
            boxes.append(
                f'<rect x="28" y="{y}" width="{WIDTH - 28 - GAP}" height="{ROW - GAP // 2}" rx="5"/>'
                f'<text class="name" x="40" y="{y + 20}">{name}</text>'
                f'<text x="{40 + LABEL}" y="{y + 20}">{escape(purpose(name))}</text>'
            )
            # Those of one layer touch: neither stands on the other.
            y += ROW - GAP // 2
        y += GAP
    boxes.append(f'<text x="28" y="{y + 14}">Imports point down.</text>')
    y += 24
    arrow = f'<path d="M14 {GAP} V{y - GAP} m-5 -9 l5 9 l5 -9"/>'
    title = "<title>The packages of gpusize: each imports only what stands below it</title>"
    size = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            title,
            f"<style>{STYLE}</style>",
            *boxes,
            arrow,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write the picture."""
    Path(PICTURE).write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
