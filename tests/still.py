"""A picture of the panel in a saved lab notebook, for those who read it where no widget is alive.

    python tests/still.py nbs/lab/01_step_generations.ipynb 34

The notebook is run from top to bottom, its `lab` lives so many generations more, and what `snapshot_html` then returns
is kept in the cell that shows the panel. The panel itself is not: a reader of the notebook would see a message that its
widgets are missing, since they went with their kernel.
"""
import subprocess
import sys
from pathlib import Path

import nbformat
from kernels import in_kernel

VIEW = 'application/vnd.jupyter.widget-view+json'
MORE = """
from IPython.display import HTML
lab.run({n})
assert lab.wait(1800) and lab.runner.error is None
HTML(lab.snapshot_html())
"""


def keep_picture(path, generations):
    "Run a notebook and save it without outputs, but for the picture"
    nb = nbformat.read(path, as_version=4)
    client = in_kernel(nb, path, 1800)
    with client.setup_kernel():
        for i, cell in enumerate(nb.cells): client.execute_cell(cell, i)
        more = nbformat.v4.new_code_cell(MORE.format(n=generations))
        nb.cells.append(more)
        client.execute_cell(more, len(nb.cells) - 1)
        nb.cells.pop()
    still = nbformat.v4.new_output('display_data', {'text/html': more.outputs[0].data['text/html'],
                                                    'text/plain': 'a picture of the panel'})
    for cell in nb.cells:
        if cell.cell_type == 'code':        # other widgets are no panel
            shown = [x.data.get('text/plain', '') for x in cell.outputs if VIEW in x.get('data', {})]
            cell.outputs = [still] * any(text.startswith('Lab(') for text in shown)
    nb.metadata.pop('widgets', None)
    nbformat.write(nb, path)
    subprocess.run(['nbdev_clean', '--fname', str(path)], check=True)


if __name__ == '__main__': keep_picture(Path(sys.argv[1]), int(sys.argv[2]))
