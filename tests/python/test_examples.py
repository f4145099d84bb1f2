# SPDX-License-Identifier: Apache-2.0
"""The examples run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "python"
PROGRAMS = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("example", PROGRAMS, ids=lambda path: path.stem)
def test_example(example: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_runs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 1 and not any(cell.get("outputs") for cell in cells), "a result of some machine is in it"
    done = subprocess.run([sys.executable, "-c", "\n\n".join(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "stand-in" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyter(notebook: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    read = nbformat.read(notebook, as_version=4)
    nbformat.validate(read)
    nbclient.NotebookClient(read, timeout=60, kernel_name="python3").execute()
    assert any("stand-in" in str(cell.get("outputs")) for cell in read.cells)
