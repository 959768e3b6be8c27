"""README.md is nbs/index.ipynb, short, and true: links lead somewhere, commands exist, outputs are made again.

The limits: at most 900 words of prose; sentences of at most 25 words on average, and of 35 at most. Prose is everything
outside of code blocks, tables and pictures: headings, paragraphs, lists, and the text of links.
"""
import base64
import json
import os
import re
import shlex
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
from typer.main import get_command

from evolora.cli.app import app
from readme import CODE, FENCE, LINK, ROOT, relink, render
from rooms import ROOMS


def test_readme_is_the_index_notebook():
    written = (ROOT / 'README.md').read_text(encoding='utf-8')
    assert written == render(), ('README.md and nbs/index.ipynb differ; edit the notebook, then run: '
                                 'python tests/readme.py --write')


def prose(text):
    "The paragraphs of a page, as they are read: without code blocks, tables and pictures; of links only the text"
    text = re.sub(r'!\[[^\]]*\]\([^)]*\)', '', FENCE.sub('', text))
    text = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text)
    lines = ['' if line.startswith('|') else re.sub(r'^(#+|>|-|\d+\.) ', '\n', line) for line in text.splitlines()]
    return [part for part in re.split(r'\n\s*\n', '\n'.join(lines)) if words(part)]


def words(text): return [word for word in text.split() if re.search(r'\w', word)]


def sentences(text):
    "The sentences of a page; a heading is one"
    return [found for part in prose(text) for found in re.split(r'(?<=[.!?])\s+', part) if words(found)]


def test_readme_is_short_and_so_are_its_sentences():
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    lengths = {sentence: len(words(sentence)) for sentence in sentences(text)}
    assert sum(len(words(part)) for part in prose(text)) <= 900
    assert sum(lengths.values()) / len(lengths) <= 25
    assert {sentence: n for sentence, n in lengths.items() if n > 35} == {}


def test_words_are_counted_outside_of_tables_code_and_pictures():
    text = ('# One\n\n> two three\n\n![not this](x.png)\n\n```bash\nnot this\n```\n\n| not | this |\n|---|---|\n\n'
            '- Four `five` [six](not-this.md) – seven.\n- Eight! Nine?\n')
    assert [len(words(part)) for part in prose(text)] == [1, 2, 4, 2]
    assert [len(words(sentence)) for sentence in sentences(text)] == [1, 2, 4, 1, 1]


PAGES = ['README.md', 'CONTRIBUTING.md', 'nbs/howto.md', 'nbs/changelog.md']


@pytest.mark.parametrize('page', PAGES)
def test_every_relative_link_exists(page):
    text = CODE.sub('', FENCE.sub('', (ROOT / page).read_text(encoding='utf-8')))
    targets = [match['target'].partition('#')[0] for match in LINK.finditer(text)]
    relative = [target for target in targets if target and not re.match(r'[a-z]+:|/', target)]
    missing = [target for target in relative if not ((ROOT / page).parent / target).exists()]
    assert relative and not missing, f'{page} links to files that are not there: {missing}'


def test_every_link_to_a_heading_of_the_readme_leads_to_one():
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    headings = {re.sub(r'[^\w -]', '', name).lower().replace(' ', '-') for name in re.findall(r'^#+ (.*)', text, re.M)}
    assert set(re.findall(r'\]\(#([^)]+)\)', text)) <= headings


def commands(text):
    "The arguments of every evolora command in the shell blocks of a page"
    for block in re.findall(r'^```bash\n(.*?)^```', text, re.M | re.S):
        for line in block.splitlines():
            for part in line.split('&&'):
                found = shlex.split(part, comments=True)
                if found[:1] == ['evolora']: yield found[1:]


@pytest.mark.parametrize('page', ['README.md', 'nbs/howto.md'])
def test_every_command_and_option_exists(page):
    found = list(commands((ROOT / page).read_text(encoding='utf-8')))
    for arguments in found:
        command, rest = get_command(app), list(arguments)
        options = {name for option in command.params for name in option.opts}
        while rest and hasattr(command, 'commands'):
            word = rest.pop(0)
            if word in options: rest.pop(0)
            else:
                assert word in command.commands, f'evolora {shlex.join(arguments)}: no command {word}'
                command = command.commands[word]
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word for word in rest if word.startswith('--')} <= options, f'evolora {shlex.join(arguments)}'
    assert found


def test_contributing_names_all_rooms_in_their_order():
    text = (ROOT / 'CONTRIBUTING.md').read_text(encoding='utf-8')
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


def test_the_picture_of_stakes_gives_leaders_colours_and_labels_and_others_grey():
    pictures = pytest.importorskip('pictures', reason='it needs playwright')
    shares = {'o1': [.9, .8, .8, .8, .1, .1, .1, .1], 'o2': [.1, .1, .1, .1, .7, .7, .8, .8],
              'o10': [0., .1, .1, .1, .2, .2, .1, .1]}
    held = pd.DataFrame([{'generation': g, 'organelle': id, 'stakes': x} for id, xs in shares.items()
                         for g, x in enumerate(xs) if x])
    ids, colours = pictures.adapter_colours(held)
    assert ids == ['o1', 'o2', 'o10'] and colours['o10'] in pictures.GREYS
    assert [colours['o1'], colours['o2']] == pictures.OKABE_ITO[:2]
    labels = pictures.label_places(held, ids, colours)
    assert labels[['generation', 'name']].values.tolist() == [[2.5, 'o1'], [6.5, 'o2']]
    assert labels.y.tolist() == pytest.approx([.4, .1 + .8 / 2])


@pytest.mark.slow
def test_the_script_of_the_readme_prints_what_stands_below_it():
    text = (ROOT / 'README.md').read_text()
    wanted = r"```python\n(from evolora import Ecology\n.*?)```\n\n```\n(.*?)```"
    script, printed = re.search(wanted, text, re.S).groups()
    made = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, cwd=ROOT)
    assert (made.returncode, made.stdout) == (0, printed), made.stderr


@pytest.mark.slow
def test_the_commands_of_the_readme_print_what_stands_below_them(tmp_path):
    "All lines that are shown but the marks of what was left out; the seconds at the end of a generation are not shown"
    text = (ROOT / 'README.md').read_text()
    command, shown = re.search(r'```bash\npip install -e \.\nevolora (.*?)\n```\n\n```\n(.*?)```', text, re.S).groups()
    code = 'from evolora.cli.app import main; main()'
    made = subprocess.run([sys.executable, '-c', code, *command.split()], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | {'PYTHONPATH': str(ROOT), 'COLUMNS': '120'})
    lines = (made.stdout + made.stderr).replace('┃', '│').splitlines()
    printed = {re.sub(r' \| [0-9.]+ s$', '', line) for line in lines}
    missing = [line for line in shown.splitlines() if line != '…' and line not in printed]
    assert made.returncode == 0 and missing == [], made.stderr
