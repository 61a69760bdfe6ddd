#!/usr/bin/env python3
"""Draws the README's picture of a run from the report that the run wrote.

  tools/run_picture.py demo-out/model/report.html docs/run.svg

The loss curve and the memory of the plan stand side by side, and under them what was planned beside
what was measured. Nothing is drawn anew: the charts are the report's.
"""

import re
import sys

STYLE = """<style>
text{font:17px system-ui,sans-serif;fill:#444}.facts{font-size:21px}.box{fill:#fff}
.grid{stroke:#e4e4e4;fill:none}.line{fill:none;stroke-width:2.4}
.faint{stroke-opacity:.35;stroke-width:1.2}.band0{fill:#8881}.band1{fill:#8883}.band2{fill:#8880}
@media(prefers-color-scheme:dark){text{fill:#bbb}.grid{stroke:#333}.box{fill:#181818}}
</style>"""


def chart(page, title):
    """Width, height and drawing of the first chart below a heading."""
    return re.search(rf'<h2>{title}</h2>.*?<svg viewBox="0 0 (\d+) (\d+)".*?>\n(.*?)</svg>', page, re.DOTALL)


def picture(page):
    charts = chart(page, "Loss"), chart(page, "Memory of the plan")
    rows = re.findall(r"<tr><td>(FLOPs a step|peak bytes)</td><td>(.*?)</td><td>(.*?)</td>", page)
    parameters = re.search(r"<p>(.*? parameters), ", page)
    if not all(charts) or len(rows) != 2 or not parameters:
        raise ValueError("it is not a report as this version of tegula writes it")
    (width, height, loss), (_, _, memory) = (c.groups() for c in charts)
    width, height = int(width), int(height)
    facts = " · ".join([parameters[1]] + [f"{what}: planned {a}, measured {b}"
                                          for what, a, b in rows])
    return "\n".join([
        f'<svg viewBox="0 0 {2 * width} {height + 40}" role="img" '
        'xmlns="http://www.w3.org/2000/svg">',
        "<title>Loss, and memory of the plan, of a training run</title>", STYLE,
        f'<rect class="box" width="{2 * width}" height="{height + 40}"/>', loss.strip(),
        f'<g transform="translate({width})">', memory.strip(), "</g>",
        f'<text class="facts" x="{width}" y="{height + 26}" text-anchor="middle">{facts}</text>',
        "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as report:
        page = report.read()
    try:
        drawn = picture(page)
    except ValueError as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
