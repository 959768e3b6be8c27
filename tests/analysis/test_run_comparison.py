"""Runs side by side: what was set differently is shown first, and what may not differ is refused by name."""
import json
import shutil

import pytest
from scipy.stats import t
from synthetic import write_run

from evolora.analysis.run_comparison import comparable, comparison, mean_interval
from evolora.analysis.run_animation import timeline
from evolora.analysis.tables import load
from evolora.analysis.weights import inspect
from evolora.ecology.checkpoint_files import checkpoints
from evolora.ecology.config import changed_config, load_config
from evolora.analysis.run_dashboard import dashboard
from evolora.ecology.ecology import Ecology
from evolora.host.model import tiny_host
from evolora.analysis.run_report import report
from evolora.ecology.run_folder import begin, config_differences, differences
from evolora.ecology.sessions import begin_session


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    folder, host, config = tmp_path_factory.mktemp('runs'), tiny_host(), load_config('debug')
    dear = changed_config(config, {'economy': {'price_gflop': 1.}})
    for name, settings, seed in (('one', config, 0), ('two', dear, 1), ('same', config, 0)):
        world = Ecology(host, settings, seed=seed)
        world.run(2, hooks=[begin(folder / name, world).record], log=None)
    return folder


def test_what_differs_comes_first_and_nothing_else(runs):
    tables = comparison([runs / 'one', runs / 'two'])
    assert [title.split(',')[0] for title in tables] == ['What differs', 'Rates of the last generations',
                                                         'The last generations']
    assert tables['What differs'].to_dict('index') == {'seed': {'1 one': '0', '2 two': '1'},
                                                       'economy.price_gflop': {'1 one': '5.0', '2 two': '1.0'}}
    assert comparison([runs / 'one', runs / 'same'])['What differs'].empty
    last = comparison([runs / 'one', runs / 'same', runs / 'two'])['The last generations']
    assert list(last) == ['1 one', '2 same', '3 two'] and (last['1 one'] == last['2 same']).sum() >= len(last) - 1


@pytest.mark.parametrize('key', ['host', 'streams', 'grader', 'cost'])
def test_what_may_not_differ_is_named(runs, tmp_path, key):
    other = shutil.copytree(runs / 'one', tmp_path / 'other')
    record = json.loads((other / 'run.json').read_text())
    record['hashes'][key] = 'f' * 16
    (other / 'run.json').write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f'{key} was [0-9a-f]+ and is ffffffffffffffff') as error:
        comparable([runs / 'one', other])
    assert '\n' not in str(error.value)
    del record['hashes'][key]
    (other / 'run.json').write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f'{key} was'): comparable([runs / 'one', other])


def test_what_was_edited_is_not_compared(tmp_path):
    host, config = tiny_host(), load_config('debug')
    for name in ('one', 'two'):
        with begin_session(tmp_path / name, host, config) as session: session.live(1, log=None)
    comparable([tmp_path / 'one', tmp_path / 'two'])
    for name, old, new in (('generations.jsonl', '"alive": ', '"alive": 1'), ('run.json', '"seed": ', '"seed": 1')):
        path = tmp_path / 'two' / name
        text = path.read_text()
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError, match=f'{name}.* expected .* written') as error:
            comparable([tmp_path / 'one', tmp_path / 'two'])
        assert '\n' not in str(error.value)
        path.write_text(text)


EDITS = {'a table': (lambda f: edit(f / 'generations.jsonl', '"alive": ', '"alive": 1'), 'generations.jsonl expected'),
         'the record': (lambda f: edit(f / 'run.json', '"seed": ', '"seed": 1'), 'run.json expected what was written'),
         'a manifest': (lambda f: edit(next(f.glob('checkpoints/*/manifest.json')), '"bytes": ', '"bytes": 1'),
                        'manifest.json expected a manifest as it was written'),
         'a table cut short': (lambda f: (f / 'episodes.jsonl').write_text(''), 'episodes.jsonl: expected at least'),
         'a table that is gone': (lambda f: (f / 'episodes.jsonl').unlink(), 'episodes.jsonl expected .* got no file'),
         'checkpoints elsewhere': (lambda f: (f / 'checkpoints').rename(f / 'x') and
                                   (f / 'checkpoints').symlink_to('x'), 'checkpoints expected a folder, got a link')}


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope='module')
def sealed(tmp_path_factory):
    folder = tmp_path_factory.mktemp('sealed') / 'run'
    with begin_session(folder, tiny_host(), load_config('debug')) as session: session.live(1, log=None)
    for earlier in checkpoints(folder)[:-1]: shutil.rmtree(earlier)
    return folder


@pytest.mark.parametrize('what', EDITS)
def test_what_was_edited_is_not_shown(sealed, tmp_path, what):
    "Whatever reads the tables of one run refuses what a comparison refuses"
    folder, (change, message) = shutil.copytree(sealed, tmp_path / 'run'), EDITS[what]
    change(folder)
    for show in (load, report, dashboard, timeline, lambda f: inspect(f, 'o1')):
        with pytest.raises(ValueError, match=message) as error: show(folder)
        assert '\n' not in str(error.value) and str(folder) in str(error.value)
    assert not any((folder / name).exists() for name in ('report.md', 'charts', 'dashboard.html', 'timeline.gif'))


def test_rows_after_the_latest_checkpoint_are_shown(sealed, tmp_path):
    "A run that goes on is ahead of its checkpoint"
    folder = shutil.copytree(sealed, tmp_path / 'run')
    with (folder / 'generations.jsonl').open('a') as file:
        file.write((folder / 'generations.jsonl').read_text().replace('"generation": 0', '"generation": 1'))
    assert len(load(folder).generations) == 2


def test_one_run_is_no_comparison(runs):
    with pytest.raises(ValueError, match='two runs or more'): comparison([runs / 'one'])


def test_a_run_that_is_named_twice_is_refused(runs, tmp_path):
    (tmp_path / 'link').symlink_to(runs / 'one')
    for again in (runs / 'one', tmp_path / 'link', runs / '..' / runs.name / 'one'):
        for show in (comparison, lambda folders: report(folders, tmp_path / 'report'),
                     lambda folders: dashboard(folders, tmp_path / 'page.html')):
            with pytest.raises(ValueError, match='expected every run once, got .* twice'):
                show([runs / 'two', runs / 'one', again])
    assert not (tmp_path / 'report').exists() and not (tmp_path / 'page.html').exists()


def test_each_run_is_logged_once(runs):
    lines = []
    comparison([runs / 'one', runs / 'two'], log=lines.append)
    assert lines == [f'reading {runs / name}' for name in ('one', 'two')]


def test_differences_have_the_names_of_keys():
    one, two = {'a': {'b': 1, 'c': {}}, 'd': [1]}, {'a': {'b': 2, 'c': {'e': 1}}, 'd': [1]}
    assert config_differences(one, one) == {}
    assert config_differences(one, two) == {'a.b': [1, 2], 'a.c': [{}, None], 'a.c.e': [None, 1]}
    assert differences({'x': 'a'}, {'x': 'a', 'y': 'b'}) == ['y was unknown and is b']


def test_rates_have_the_intervals_of_wilson(runs):
    tables = comparison([runs / 'one', runs / 'two'])
    rates = next(table for title, table in tables.items() if title.startswith('Rates'))
    last = tables['The last generations']['1 one']
    shown = f"{last['accuracy']:.3f} [{last['accuracy, low']:.3f}, {last['accuracy, high']:.3f}]"
    assert rates.loc['1 one', 'accuracy'] == shown and rates['configuration'].tolist() == ['C1', 'C2']


def test_seeds_are_averaged_and_paired(tmp_path):
    folders = []
    for size, lift in ((4, 0.), (5, .1)):
        for seed, right in enumerate((.3, .4, .5)):
            run = write_run(tmp_path / f'{size}-{seed}', generations=2, size=size, tries=2, seed=seed)
            path = run.path('generations')
            rows = [json.loads(line) | {'accuracy': right + lift, 'episodes': 1000}
                    for line in path.read_text().splitlines()]
            path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
            folders.append(run.folder)
    again = write_run(tmp_path / 'again', generations=2, size=4, tries=2, seed=0)           # a seed lived twice
    tables = list(comparison([*folders, again.folder]).items())
    (_, seeds), (title, pairs) = tables[-2:]
    low, high = t.interval(.95, 2, loc=.4, scale=.1 / 3**.5)
    assert seeds['seeds'].tolist() == [3, 3] and seeds.loc['C1', 'accuracy'] == f'0.400 [{low:.3f}, {high:.3f}]'
    assert 'within seeds' in title and pairs.loc['C2 - C1', 'accuracy'] == '0.100 [0.100, 0.100]'
    with pytest.raises(ValueError, match='add a seed'): mean_interval([1.])
