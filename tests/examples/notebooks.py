"""The notebooks of `examples/`, run cell by cell without Jupyter.

`python -m tests.examples.notebooks` runs all of them and writes their outputs into them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))
Output = dict[str, Any]


def run_notebook(path: Path) -> list[list[Output]]:
    """The outputs of each code cell of a notebook, run in its folder: what it prints, then its plots."""
    import matplotlib as mpl

    mpl.use("Agg")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(path.parent):
        return [_run(cell, f"{path.name}, {cell['id']}", names) for cell in cells if cell["cell_type"] == "code"]


def _run(cell: Output, where: str, names: dict[str, Any]) -> list[Output]:
    import matplotlib.pyplot as plt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("".join(cell["source"]), where, "exec"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    for number in plt.get_fignums():
        sink = io.BytesIO()
        plt.figure(number).savefig(sink, format="png", dpi=70, metadata={"Software": None})
        picture = {"image/png": base64.b64encode(sink.getvalue()).decode()}
        outputs.append({"data": picture, "metadata": {}, "output_type": "display_data"})
    plt.close("all")
    return outputs


def printed_lines(outputs: list[Output]) -> list[str]:
    """The lines that a cell printed."""
    return [line for output in outputs if output["output_type"] == "stream" for line in output["text"]]


def stored_outputs(path: Path) -> Iterator[list[Output]]:
    """The outputs of each code cell as the notebook has them."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield cell["outputs"]


def _write_outputs(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(cells, run_notebook(path), strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for notebook in NOTEBOOKS:
        _write_outputs(notebook)
