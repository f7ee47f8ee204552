"""Executes the notebooks and writes each, with its outputs, as an .ipynb file beside its source.

python -m notebooks.build [notebooks/4_table_3_in_small.py ...]

Without arguments it builds all of them. The third reads `runs/quickstart`, if `make quickstart` has trained it. Needs
`pip install -e '.[notebooks]'`.

The percent files are the sources: edit those, then build. What differs from one execution to the next, such as times
and progress bars, is left out.
"""

import base64
import io
import os
import sys
from pathlib import Path

from PIL import Image

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import write_text

FOLDER = Path(__file__).parent
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SHARP = "--InlineBackend.figure_formats=retina"  # two pixels of a picture for each on the page


def built(source: Path, **environment: str) -> str:
    """Executes a percent file in the notebooks' folder; returns the text of the .ipynb file with its outputs.

    `environment` is added to that of this process. Standard error, on which progress is shown, is no output.

    Raises:
      UserError: a cell raised an error, or a package of the extra `notebooks` is missing.
    """
    try:
        import jupytext
        import nbclient
        import nbformat
    except ImportError as error:
        raise UserError(f"notebooks need the package {error.name}: pip install -e '.[notebooks]'") from error

    notebook = jupytext.read(source, fmt="py:percent")
    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=[SHARP, "--log-level=ERROR"],
        resources={"metadata": {"path": str(FOLDER)}},
    )
    try:
        client.execute(env=os.environ | environment)
    except nbclient.exceptions.CellExecutionError as error:
        raise UserError(f"{source.name}: {error.ename}: {error.evalue}") from error

    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"  # else random
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = smaller(output.data["image/png"])
                if "text/html" in output.get("data", {}):
                    output.data.pop("text/plain")  # the address of an object
    return nbformat.writes(notebook) + "\n"


def smaller(png: str) -> str:
    """Returns a picture in 256 colours, which takes less than half the space; PNG in base64, as notebooks keep it."""
    picture = Image.open(io.BytesIO(base64.b64decode(png)))
    written = io.BytesIO()
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(written, format="png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def main(argv: list[str]) -> None:
    """Builds the notebooks named by `argv[1:]`, or all of them."""
    sources = [Path(name) for name in argv[1:]] or SOURCES
    for source in sources:
        print(f"executing {source.name}", file=sys.stderr)
        text = built(source)
        output = source.with_suffix(".ipynb")
        write_text(output, text)
        print(output)


if __name__ == "__main__":
    run(main)
