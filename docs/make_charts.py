#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""Draws sweep_logits.svg, sweep_store.svg and sweep_gather.svg from the JSON of kindex_sweep.

    kindex_sweep --benchmark_out=build/sweep.json --benchmark_out_format=json
    docs/make_charts.py build/sweep.json [FOLDER]

FOLDER is where they go: beside this file unless named. Needs nothing but Python 3.
"""

import json
import math
import pathlib
import sys

# Group of kindex_sweep's cases: title, and the ceiling that its goals are shares of. The rates of
# the store and of the gather count bytes read and bytes written, as the copy's does.
TABLES = {
    "logits": ("Paged MQA logits", "read"),
    "store": ("Store", "copy"),
    "gather": ("Gather", "copy"),
}
CEILINGS = ("read", "copy", "write")


class WrongFile(Exception):
    """The file is not a whole run of kindex_sweep on a GPU."""


class Case:
    def __init__(self, name, entry):
        self.name = name
        self.failed = bool(entry.get("error_occurred"))
        if self.failed:
            return
        if entry.get("time_unit") != "us":
            raise WrongFile(f"{name}: its time is not in us")
        self.bytes = number(entry, "bytes", name)
        self.time = number(entry, "real_time", name)
        # Only where the sweep has one.
        self.goal = number(entry, "goal_us", name) if "goal_us" in entry else None
        self.peer = number(entry, "peer_us", name) if "peer_us" in entry else None
        # Only where the device can let a launch begin before the one before it has ended.
        self.overlapped = (number(entry, "overlapped_us", name) if "overlapped_us" in entry
                           else None)

    def share(self, microseconds, ceiling):
        """Of the ceiling, in GB/s, what the case's bytes in this time are."""
        return self.bytes / microseconds * 1e-3 / ceiling


def number(fields, key, where):
    # The context's values are strings, those of a case are not.
    try:
        value = float(fields[key])
    except KeyError:
        raise WrongFile(f"{where}: no {key}") from None
    except (TypeError, ValueError):
        raise WrongFile(f"{where}: {key} is not a number") from None
    if not (math.isfinite(value) and value > 0):
        raise WrongFile(f"{where}: {key} is {fields[key]}")
    return value


class Run:
    """What a file says: device, ceilings, and the cases of each table in the order of the sweep."""

    def __init__(self, text):
        try:
            content = json.loads(text)
        except ValueError as error:
            raise WrongFile(f"not JSON: {error}") from None
        try:
            context, entries = content["context"], content["benchmarks"]
            self.device, self.mode = context["device"], context["mode"]
            self.version, self.date = context["kindex"], context["date"][:10]
            names = [entry["run_name"].split("/") for entry in entries]
        except (KeyError, TypeError, AttributeError):
            raise WrongFile("not the JSON output of kindex_sweep") from None
        if self.mode != "measured":
            raise WrongFile(f"no times in it: its mode is \"{self.mode}\"")
        self.ceilings = {kind: number(context, f"{kind}_ceiling_gb_per_s", "context")
                         for kind in CEILINGS}
        self.tables = {table: {} for table in TABLES}
        for (table, *name), entry in zip(names, entries):
            # Of repetitions the last one stands, as in the sweep's own table. Means are no cases.
            if table in TABLES and name and entry.get("run_type") == "iteration":
                self.tables[table][name[0]] = Case(name[0], entry)
        # Charts of several runs side by side would have several ceilings.
        missing = [table for table in TABLES if not self.tables[table]]
        if missing:
            raise WrongFile(f"no cases of {', '.join(missing)}: it takes a whole kindex_sweep")

    def cases(self, table):
        return list(self.tables[table].values())


# Where a picture is shown as an image, it sees the browser's preference but not the page: so it has
# a background of its own in both modes.
STYLE = """
  .back { fill: #ffffff } .ink { fill: #1f2933 } .muted { fill: #5f6b7a }
  .grid { stroke: #d5dbe1 } .bar { fill: #86b3df } .overlapped { fill: #c9def2 }
  .goal { stroke: #1f2933 } .peer { stroke: #c2570c } .dot { fill: #c2570c }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .ink { fill: #e6edf3 } .muted { fill: #9aa5b1 }
    .grid { stroke: #30363d } .bar { fill: #2f6aa3 } .overlapped { fill: #1d3f60 }
    .goal { stroke: #ffffff } .peer { stroke: #f0883e } .dot { fill: #f0883e }
  }
"""


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\"", "&quot;")


class Drawing:
    def __init__(self, width, label):
        self.width = width
        self.label = label
        self.parts = []

    def rect(self, x, y, w, h, style):
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{w:.2f}" '
                          f'height="{h:g}"/>')

    def text(self, x, y, text, size=12, anchor="start", style="ink", weight="normal"):
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}" font-size="{size:g}" '
                          f'text-anchor="{anchor}" font-weight="{weight}">{escaped(text)}</text>')

    def line(self, x, y1, y2, style, width):
        self.parts.append(f'<line class="{style}" x1="{x:.2f}" y1="{y1:g}" x2="{x:.2f}" '
                          f'y2="{y2:g}" stroke-width="{width:g}"/>')

    def goal(self, x, middle):
        self.line(x, middle - 9, middle + 9, "goal", 2.5)

    def peer(self, x, middle):
        # The dot tells it from a goal at the same place, and without colours.
        self.line(x, middle - 9, middle + 9, "peer", 1.5)
        self.parts.append(f'<circle class="dot" cx="{x:.2f}" cy="{middle:g}" r="3.5"/>')

    def whole(self, height):
        w = self.width
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{height}" '
                f'viewBox="0 0 {w} {height}" font-family="DejaVu Sans, Verdana, sans-serif" '
                f'role="img" aria-label="{escaped(self.label)}">\n'
                '<!-- SPDX-FileCopyrightText: The kindex authors -->\n'
                '<!-- SPDX-License-Identifier: MIT -->\n'
                '<!-- Drawn by make_charts.py. -->\n'
                f'<style>{STYLE}</style>\n'
                f'<rect class="back" width="{w}" height="{height}"/>\n')
        return head + "\n".join(self.parts) + "\n</svg>\n"


WIDTH, MARGIN, ROW = 1080, 24, 26
BARS_LEFT, BARS_RIGHT = 210, 740
# Right edges of the columns of microseconds.
TIME, OVERLAPPED, GOAL, PEER = 806, 898, 976, 1054


def draw_legend(d, y):
    middle = y - 4
    d.rect(BARS_LEFT, middle - 7, 28, 14, "bar")
    d.text(BARS_LEFT + 36, y, "measured", style="muted")
    d.rect(BARS_LEFT + 120, middle - 7, 28, 14, "overlapped")
    d.text(BARS_LEFT + 156, y, "overlapped", style="muted")
    d.goal(BARS_LEFT + 250, middle)
    d.text(BARS_LEFT + 260, y, "goal", style="muted")
    d.peer(BARS_LEFT + 320, middle)
    d.text(BARS_LEFT + 332, y, "best peer", style="muted")


def draw_axis(d, top, bottom, span, share_x):
    """A line at every 20 %; that at 100 %, the ceiling, stands out."""
    for i in range(round(span / 0.2) + 1):
        d.line(share_x(i / 5), top, bottom, "grid", 2 if i == 5 else 1)
        d.text(share_x(i / 5), bottom + 16, f"{20 * i} %", 11, "middle", "muted")


def draw(run, table):
    title, kind = TABLES[table]
    ceiling = run.ceilings[kind]
    cases = run.cases(table)
    # Some may be above 100 %: the ceiling is a measurement too.
    shares = [case.share(time, ceiling) for case in cases if not case.failed
              for time in (case.time, case.overlapped, case.goal, case.peer) if time is not None]
    span = max(1.0, math.ceil(max(shares, default=1.0) * 5 - 1e-9) / 5)

    def share_x(share):
        return BARS_LEFT + share / span * (BARS_RIGHT - BARS_LEFT)

    d = Drawing(WIDTH, f"{title} on {run.device}: shares of the {kind} ceiling, and times")
    d.text(MARGIN, 34, f"{title}: share of the {kind} ceiling of the same run", 15, weight="bold")
    draw_legend(d, 64)
    for x, name in ((TIME, "us"), (OVERLAPPED, "overlapped"), (GOAL, "goal us"), (PEER, "peer us")):
        d.text(x, 64, name, anchor="end", style="muted")
    top = 78
    bottom = top + len(cases) * ROW
    draw_axis(d, top, bottom, span, share_x)
    for i, case in enumerate(cases):
        middle = top + (i + 0.5) * ROW
        d.text(BARS_LEFT - 10, middle + 4, case.name, anchor="end")
        if case.failed:
            d.text(BARS_LEFT + 8, middle + 4, "failed")
            continue
        share = case.share(case.time, ceiling)
        if case.overlapped is not None:
            # Under the bar, which it outlasts by what the overlap spares.
            d.rect(BARS_LEFT, middle - 7,
                   share_x(case.share(case.overlapped, ceiling)) - BARS_LEFT, 14, "overlapped")
        d.rect(BARS_LEFT, middle - 7, share_x(share) - BARS_LEFT, 14, "bar")
        if case.goal is not None:
            d.goal(share_x(case.share(case.goal, ceiling)), middle)
        if case.peer is not None:
            d.peer(share_x(case.share(case.peer, ceiling)), middle)
        d.text(TIME, middle + 4, f"{case.time:.2f}", anchor="end", weight="bold")
        for x, time in ((OVERLAPPED, case.overlapped), (GOAL, case.goal), (PEER, case.peer)):
            if time is not None:
                d.text(x, middle + 4, f"{time:.2f}", anchor="end")
    read, copy, write = (f"{run.ceilings[kind]:,.0f}" for kind in CEILINGS)
    caption = (
        f"{run.device}, kindex {run.version}, {run.date}. Ceilings measured in the same run: "
        f"read {read} GB/s, copy {copy} GB/s, write {write} GB/s.",
        "Inputs rotate, outputs go to one buffer. Overlapped: each launch of the graph begins while "
        "the one before it ends. Goals and peers are for one H200, without.",
        "A small launch takes its latency, whatever the memory gives: there the times tell more "
        "than the shares.")
    for i, line in enumerate(caption):
        d.text(MARGIN, bottom + 44 + 17 * i, line, 11, style="muted")
    return d.whole(bottom + 95)


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    source = pathlib.Path(sys.argv[1])
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else pathlib.Path(__file__).parent
    try:
        run = Run(source.read_bytes())
        # All of them before the first is written: they are of one run, or stay as they are.
        charts = {f"sweep_{table}.svg": draw(run, table) for table in TABLES}
        for name, svg in charts.items():
            (folder / name).write_text(svg, encoding="utf-8")
    except WrongFile as error:
        sys.exit(f"{source}: {error}")
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
