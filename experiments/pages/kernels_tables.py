"""Tables of the pages on kernels and scale, from the committed results of `experiments.pages.run`.

python -m experiments.pages.kernels_tables TABLE      # a name of `block`, such as lanes
"""

from __future__ import annotations

import sys

from experiments.markdown import Tables, markdown_table
from experiments.pages.kernels_cells import LANES
from experiments.pages.report import line_of
from experiments.pages.scale_cells import SHADOWS

made = Tables()
block = made.block


@made
def lanes() -> str:
    """Steps of all lanes of SMACOF over what they need, under `vmap` and where those that are done leave."""
    rows = []
    for name, (n, count, init, eps) in LANES.items():
        line = line_of("lanes", name)
        spread = ", ".join(f"{line[what]:.0f}" for what in ("least", "median", "most"))
        setting = f"{n}, {count}, {init}, {eps:.0e}".replace("e-0", "e-")
        rows.append((setting, spread, *(f"{line[what]:.2f}" for what in ("vmap", "compacted"))))
    return markdown_table(("n, lanes, start, eps", "iterations: least, median, most", "`vmap`", "compacted"), rows)


@made
def passing() -> str:
    """Error left by an attack that learns from shadows that are kept or added up."""
    line = line_of("passing", "mds")
    kept = (f"{line['landmarks']:,}, all held (`invariant.fit`)", f"{line['held']:.2f}")
    rows = [kept, *((f"{m:,}, added up", f"{line['left'][str(m)]:.2f}") for m in SHADOWS)]
    return markdown_table(("shadows of MDS", "error, times the mean record's"), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
