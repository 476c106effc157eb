"""Runs the code cells of a notebook without Jupyter, and writes their outputs into it.

python -m tests.library.notebook docs/library.ipynb       run it anew, and keep its output
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path


def code_cells(notebook):
    """Return the cells with code, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source, names):
    """Run a cell among the names of those before it; return its outputs as a notebook has them."""
    module = ast.parse(source)
    shown = None
    if module.body and isinstance(module.body[-1], ast.Expr):
        shown = ast.Expression(module.body.pop().value)
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(module, "<cell>", "exec"), names)
        if shown is not None:
            value = eval(compile(shown, "<cell>", "eval"), names)
    outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "savefig"):
            picture = io.BytesIO()
            value.savefig(picture, format="png", dpi=70)
            data["image/png"] = base64.b64encode(picture.getvalue()).decode()
        outputs.append(
            {"output_type": "execute_result", "metadata": {}, "execution_count": None, "data": data}
        )
    return outputs


def run_notebook(notebook):
    """Run all code cells in the present folder, and replace their outputs."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell["outputs"] = run_cell("".join(cell["source"]), names)
        cell["execution_count"] = number
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = number


def main(path):
    """Run a notebook in an empty folder and write it anew."""
    notebook, path = json.loads(path.read_text(encoding="utf-8")), path.resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        run_notebook(notebook)
        os.chdir("/")
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
