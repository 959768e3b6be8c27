"""`evolora islands` as a person uses it: begun, watched, reported, gone on with; and what cannot be meant."""
import pytest

from evolora.islands.islands_folder import place_of

CONFIG = '''\
cells: ['string.sort:1', 'math:1']
founders: 2
capacity: 3
max_rank: 8
max_new_tokens: 8
market: {protect: 1, questions: 8}
curriculum: {copies: 2}
'''


@pytest.fixture
def cli(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    (tmp_path / 'tiny.yaml').write_text(CONFIG)
    return cli


def test_begun_watched_reported_and_gone_on_with(cli, tmp_path):
    code, out, err = cli('islands', '--n', 2, '--migrate-every', 2, '--config', 'tiny.yaml', '--generations', 4)
    folder = tmp_path / 'runs/islands-seed0'
    assert code == 0 and '8 generations on 2 islands' in out and 'balanced' in out
    assert f'--resume {folder.relative_to(tmp_path)} --generations 8' in out
    code, out, _ = cli('islands', '--resume', folder, '--generations', 6)
    assert code == 0 and '12 generations on 2 islands' in out
    assert out.count('go on: ') == 1
    code, out, _ = cli('watch', folder, '--once')
    assert code == 0 and '12 generations on 2 islands' in out and 'generation' in out
    code, out, _ = cli('report', folder, '--html')
    assert code == 0 and (folder / 'report.md').is_file() and (folder / 'dashboard.html').stat().st_size < 3_000_000
    text = (folder / 'report.md').read_text()
    assert '2 islands on embedded' in text and 'charts/crossings.png' in text
    code, out, _ = cli('report', place_of(folder, 1))
    assert code == 0 and (place_of(folder, 1) / 'report.md').is_file()


@pytest.mark.parametrize('words, said', [
    (['--n', 1], "--n'"), (['--topology', 'mesh'], 'topology expected ring'),
    (['--migrate-every', 3], 'whole epochs of 3, got 20; take 21'), (['--workers', 2], '--workers expected --ray'),
    (['--gpus', 1], '--gpus expected --ray'), (['--resume', 'nowhere'], 'a folder of islands'),
    (['--apart', 1], 'a world that changes'), (['--ray', '127.0.0.1:1'], 'Ray')])
def test_what_cannot_be_meant_is_one_line_and_nothing_is_written(cli, tmp_path, words, said):
    new = [] if '--resume' in words else ['--out', tmp_path / 'x', '--config', 'tiny.yaml']
    code, out, err = cli('islands', *new, *words)
    assert code == 2 and said in err and 'Traceback' not in err and not (tmp_path / 'x').exists()


def test_a_plan_is_not_changed_on_the_way(cli, tmp_path):
    folder = tmp_path / 'two'
    begun = ['islands', '--n', 2, '--migrate-every', 2, '--config', 'tiny.yaml', '--generations', 2, '--out', folder]
    assert cli(*begun)[0] == 0
    for words, said in ((['--topology', 'star'], 'expected the topology of the plan, ring, got star'),
                        (['--n', 3], 'expected the islands of the plan, 2, got 3'), (['--seed', 4], 'seed of the plan'),
                        (['--config', 'debug'], '--resume without --config'), (['--out', 'y'], '--resume or --out')):
        code, out, err = cli('islands', '--resume', folder, *words)
        assert code == 2 and said in err and err.count('\n') == 1
    code, out, err = cli('run', '--resume', place_of(folder, 0))
    assert code == 2 and 'evolora islands --resume' in err
    code, out, err = cli('report', folder, folder, '--out', 'z')
    assert code == 2 and 'one folder of islands' in err


def test_a_life_that_is_stopped_names_one_way_on(cli, tmp_path, monkeypatch):
    "The one to the end that was asked for, and no longer one"
    from evolora.islands.islands import Islands
    whole = Islands.run
    monkeypatch.setattr(Islands, 'run', lambda many, generations, **how: whole(many, 2, **how))      # as if by Ctrl-C
    code, out, err = cli('islands', '--n', 2, '--migrate-every', 2, '--preset', 'tiny.yaml', '--generations', 4,
                         '--out', 'x')
    ways = [line for line in (out + err).splitlines() if '--resume' in line]
    assert code == 0 and ways == ['go on: evolora islands --resume x --generations 4'] and 'all of it is kept' in err
