"""A kernel that runs a notebook as its readers run it."""
from nbclient import NotebookClient
from nbclient.output_widget import OutputWidget


class Silent(OutputWidget):
    """An output widget that does not report to the kernel what it shows.

    It would report it on the channel on which the reply of the cell is awaited. Now and then the reply is then not
    noticed before the time of the cell is over: the notebook passes, ten minutes late.
    """
    def sync_state(self): pass


def in_kernel(nb, path, seconds):
    "The client that runs the cells of a notebook where it lies; `seconds` at most for each"
    where = {'metadata': {'path': str(path.parent)}}
    client = NotebookClient(nb, timeout=seconds, kernel_name='python3', resources=where)
    client.widget_registry['@jupyter-widgets/output']['OutputModel'] = Silent
    return client
