#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""Draws layout.svg beside this file: a page of 64 tokens, and one tile of it in both layouts.

Needs nothing but Python 3. With --check it draws nothing and fails if the file is not up to date.
"""

import pathlib
import sys

PAGE_SIZE, HEAD_DIM, TILE_TOKENS, UNIT = 64, 128, 16, 16
UNITS = HEAD_DIM // UNIT
# A load instruction of a wave, as page_stream_gfx9.hpp has it: two tiles, 32 dims.
LANES, UNITS_PER_LOAD = 64, 2


def k_offset(layout, token, dim):
    """Byte offset in the page, as include/kindex/cache_view.hpp has it."""
    if layout == "plain":
        return token * HEAD_DIM + dim
    return (token // 16) * 16 * HEAD_DIM + (dim // 16) * 256 + (token % 16) * 16 + dim % 16


INK, MUTED, LINE = "#1f2933", "#5f6b7a", "#9aa5b1"
# One colour for each 512 bytes of a tile, in the order of memory.
SHADES = ["#eaf2fb", "#cfe2f5", "#aacbeb", "#86b3df"]
SCALE_SHADE = "#fbe3c0"


class Drawing:
    def __init__(self, width, height):
        self.size = width, height
        self.parts = []

    def rect(self, x, y, w, h, fill, stroke=LINE, width=1.0, extra=""):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}" '
                          f'stroke="{stroke}" stroke-width="{width:g}" {extra}/>')

    def text(self, x, y, text, size=12, anchor="start", fill=INK, weight="normal"):
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
                          f'fill="{fill}" font-weight="{weight}">{text}</text>')

    def line(self, x1, y1, x2, y2, stroke=LINE, width=1.0, dash="", arrow=False):
        marker = ' marker-end="url(#arrow)"' if arrow else ""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                          f'stroke="{stroke}" stroke-width="{width:g}"{dashes}{marker}/>')

    def write(self):
        w, h = self.size
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
                f'viewBox="0 0 {w} {h}" font-family="DejaVu Sans, Verdana, sans-serif" role="img" '
                'aria-label="Byte layout of a page, plain and preshuffled">\n'
                '<!-- SPDX-FileCopyrightText: The kindex authors -->\n'
                '<!-- SPDX-License-Identifier: MIT -->\n'
                '<!-- Drawn by make_layout_svg.py. -->\n'
                '<defs><marker id="arrow" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" '
                'markerHeight="6" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" '
                f'fill="{MUTED}"/></marker></defs>\n')
        background = f'<rect width="{w}" height="{h}" fill="#ffffff"/>\n'
        return head + background + "\n".join(self.parts) + "\n</svg>\n"


def draw_page(d, x, y, width):
    """The page as one strip of bytes: four tiles of K, then the scales. Returns tile 0's corners."""
    tile_bytes = TILE_TOKENS * HEAD_DIM
    payload = PAGE_SIZE * (HEAD_DIM + 4)
    # The scales are drawn wider than they are, for their text.
    scale_width = 150
    tile_width = (width - scale_width) / (PAGE_SIZE // TILE_TOKENS)
    d.text(x, y - 28, f"A page of {PAGE_SIZE} tokens, {HEAD_DIM} dims: {payload:,} bytes", 14,
           weight="bold")
    for i in range(PAGE_SIZE // TILE_TOKENS):
        left = x + i * tile_width
        d.rect(left, y, tile_width, 44, SHADES[1])
        d.text(left + tile_width / 2, y + 19, f"K of tokens {16 * i}–{16 * i + 15}", 12, "middle")
        d.text(left + tile_width / 2, y + 35, f"{tile_bytes:,} bytes", 11, "middle", MUTED)
        d.text(left, y - 6, f"{i * tile_bytes:,}", 11, "start", MUTED)
    left = x + width - scale_width
    d.rect(left, y, scale_width, 44, SCALE_SHADE)
    d.text(left + scale_width / 2, y + 19, f"{PAGE_SIZE} scales, fp32", 12, "middle")
    d.text(left + scale_width / 2, y + 35, "in token order, always", 11, "middle", MUTED)
    d.text(left, y - 6, f"{PAGE_SIZE * HEAD_DIM:,}", 11, "start", MUTED)
    d.text(x + width, y - 6, f"{payload:,}", 11, "end", MUTED)
    return x, x + tile_width, y + 44


def draw_tile(d, x, y, layout):
    """Tokens down, dims across; in each cell of 16 bytes its offset in the page."""
    cell_w, cell_h = 48, 20
    left, top = x + 64, y + 62
    d.text(left, y, layout, 15, weight="bold")
    memory_order = {"plain": "a token's 128 bytes in a row, then the next token",
                    "preshuffled": "16 bytes of each of the 16 tokens, then the next 16 bytes"}
    d.text(left, y + 18, memory_order[layout], 12, fill=MUTED)
    d.text(left + UNITS * cell_w / 2, y + 38, "dims", 11, "middle", MUTED)
    for u in range(UNITS):
        d.text(left + u * cell_w + cell_w / 2, top - 6, f"{16 * u}–{16 * u + 15}", 9.5, "middle",
               MUTED)
    for t in range(TILE_TOKENS):
        d.text(left - 8, top + t * cell_h + 14, f"token {t}" if t == 0 else str(t), 11, "end",
               MUTED)
        for u in range(UNITS):
            offset = k_offset(layout, t, 16 * u)
            d.rect(left + u * cell_w, top + t * cell_h, cell_w, cell_h, SHADES[offset // 512],
                   "#ffffff")
            d.text(left + u * cell_w + cell_w / 2, top + t * cell_h + 14, str(offset), 11,
                   "middle")
    bottom = top + TILE_TOKENS * cell_h
    d.rect(left, top, UNITS * cell_w, TILE_TOKENS * cell_h, "none", LINE)
    for i in range(UNITS // UNITS_PER_LOAD):
        width = UNITS_PER_LOAD * cell_w
        a = left + i * width
        d.rect(a + 1.5, top + 1.5, width - 3, TILE_TOKENS * cell_h - 3, "none", INK, 1.6,
               'stroke-dasharray="5 3"')
        d.text(a + width / 2, bottom + 18, f"load {i}", 11, "middle")
    for u in range(UNITS):
        lanes = LANES // UNITS_PER_LOAD * (u % UNITS_PER_LOAD)
        d.text(left + u * cell_w + cell_w / 2, bottom + 34, f"{lanes}–{lanes + 15}", 9.5, "middle",
               MUTED)
    d.text(left - 8, bottom + 34, "lanes", 10, "end", MUTED)
    in_tile = {"plain": "a load reads 16 pieces of 32 bytes here",
               "preshuffled": "a load reads 512 bytes in a row here"}
    d.text(left + UNITS * cell_w / 2, bottom + 52, in_tile[layout], 11, "middle")
    return left, left + UNITS * cell_w, top


def draw():
    d = Drawing(1000, 674)
    x, right, bottom = draw_page(d, 40, 64, 920)
    d.text(40, 146, "Its first tile, 16 tokens × 128 dims. A number is the offset in the page of the "
           "16 bytes of its cell; darker is later in memory.", 12)
    d.line(x, bottom, x, 132, LINE, 1, "3 3")
    d.line(right, bottom, right, 132, LINE, 1, "3 3")
    draw_tile(d, 10, 184, "plain")
    draw_tile(d, 510, 184, "preshuffled")
    d.text(40, 644, "Dashed: what one load instruction of a 64-lane wave reads of the tile, 16 bytes a "
           "lane; the other lanes, 16–31 and 48–63, read the next tile.", 11, fill=MUTED)
    d.text(40, 660, "Lane l gets token l % 32 of the two, dims 32·load + 16·(l / 32) … + 15: operands of "
           "two 32x32x16 matrix instructions as they are.", 11, fill=MUTED)
    return d.write()


def main():
    target = pathlib.Path(__file__).with_name("layout.svg")
    svg = draw()
    if "--check" in sys.argv[1:]:
        if not target.exists() or target.read_text(encoding="utf-8") != svg:
            sys.exit(f"{target} is not what {pathlib.Path(__file__).name} draws")
        return
    target.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
