"README.md is nbs/index.ipynb, and its links lead somewhere."
import base64
import json
import re
import subprocess
import sys

import nbformat
import pytest

from readme import CODE, FENCE, LINK, ROOT, relink, render
from rooms import ROOMS


def test_readme_is_the_index_notebook():
    written = (ROOT / 'README.md').read_text(encoding='utf-8')
    assert written == render(), ('README.md and nbs/index.ipynb differ; edit the notebook, then run: '
                                 'python tests/readme.py --write')


def test_every_relative_link_of_the_readme_exists():
    text = CODE.sub('', FENCE.sub('', (ROOT / 'README.md').read_text(encoding='utf-8')))
    targets = [match['target'].partition('#')[0] for match in LINK.finditer(text)]
    relative = [target for target in targets if target and not re.match(r'[a-z]+:|/', target)]
    missing = [target for target in relative if not (ROOT / target).exists()]
    assert not missing, f'README.md links to files that are not there: {missing}'


def test_the_readme_names_all_rooms_in_their_order():
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    assert re.findall(r'^\d+\. \[([a-z.]+)\]\(nbs/', text, re.M) == list(ROOMS)


@pytest.mark.parametrize('notebook, root', [
    ('![a chart](images/x.png)', '![a chart](nbs/images/x.png)'),
    ('[tasks](03_tasks/08_splits.ipynb#grading "title")',
     '[tasks](nbs/03_tasks/08_splits.ipynb#grading "title")'),
    ('[how](../CONTRIBUTING.md) and [up](./tutorials/../index.ipynb)',
     '[how](CONTRIBUTING.md) and [up](nbs/index.ipynb)'),
    ('<img src="images/x.png" alt="x">', '<img src="nbs/images/x.png" alt="x">'),
    ('[![badge](images/b.svg)](../LICENSE)', '[![badge](nbs/images/b.svg)](LICENSE)'),
    ('[w](https://a.org/x) [m](mailto:a@b.c) [h](#here) ![d](data:image/png;base64,AA)',) * 2,
    ('`[code](x.png)` and\n\n```python\n[code](x.png)\n```\n\n[d](x.png)',
     '`[code](x.png)` and\n\n```python\n[code](x.png)\n```\n\n[d](nbs/x.png)'),
    ('|a|b|\n|--|--|\n|[x](x.py)|`y`|', '|a|b|\n|--|--|\n|[x](nbs/x.py)|`y`|'),
])
def test_links_start_from_the_root(notebook, root):
    assert relink(notebook) == root


def write(folder, *cells):
    v4 = nbformat.v4
    kernelspec = {'name': 'python3', 'language': 'python', 'display_name': 'python3'}
    nb = v4.new_notebook(cells=list(cells), metadata={'kernelspec': kernelspec})
    nbformat.write(nb, folder / 'index.ipynb')
    return folder / 'index.ipynb'


def output(**data): return nbformat.v4.new_output('execute_result', data)


def test_what_a_reader_sees_is_what_is_rendered(tmp_path):
    v4 = nbformat.v4
    text = render(write(tmp_path, v4.new_markdown_cell('# evolora\n> a subtitle'),
                        v4.new_code_cell('#| hide\nsecret = 1'), v4.new_code_cell('#| eval: false\nshown = 1'),
                        v4.new_code_cell('1 + 1', outputs=[output(**{'text/plain': '2'})])))
    assert text == '# evolora\n> a subtitle\n\n```python\nshown = 1\n```\n\n```python\n1 + 1\n```\n\n    2\n'


def test_a_picture_as_output_is_refused(tmp_path):
    picture = nbformat.v4.new_code_cell('chart', outputs=[output(**{'image/png': 'iVBORw0KGgo='})])
    with pytest.raises(ValueError, match='save the picture in nbs/images/'): render(write(tmp_path, picture))


def test_the_lab_opens_with_the_picture_of_the_readme():
    "Copies of the lab's notebooks lie anywhere, so the picture travels inside the first one"
    cells = json.loads((ROOT / 'nbs/lab/01_step_generations.ipynb').read_text())['cells']
    inside = [cell['attachments']['loop.svg']['image/svg+xml'] for cell in cells if 'attachments' in cell]
    assert [base64.b64decode(x) for x in inside] == [(ROOT / 'nbs/images/loop.svg').read_bytes()]
    assert 'attachment:loop.svg' in str(cells) and 'images/loop.svg' in (ROOT / 'README.md').read_text()


@pytest.mark.slow
def test_the_script_of_the_readme_prints_what_stands_below_it():
    text = (ROOT / 'README.md').read_text()
    wanted = r"```python\n(from evolora import Ecology\n.*?)```\n\n```\n(.*?)```"
    script, printed = re.search(wanted, text, re.S).groups()
    made = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, cwd=ROOT)
    assert (made.returncode, made.stdout) == (0, printed), made.stderr


@pytest.mark.slow
def test_the_generation_that_the_readme_shows_is_lived_again():
    text = (ROOT / 'README.md').read_text()
    wanted = r'```python\n(from evolora.ecology.config[^`]*?records\[-1\])\n```\n\n([^\n]*)'
    script, shown = re.search(wanted, text).groups()
    made = subprocess.run([sys.executable, '-c', script.replace('records[-1]', 'print(records[-1].ticker())')],
                          capture_output=True, text=True, cwd=ROOT)
    timeless = [re.sub(r' \| [0-9.]+ s$', '', line) for line in (made.stdout.strip(), shown)]
    assert made.returncode == 0 and timeless[0] == timeless[1], (made.stdout, shown, made.stderr)
