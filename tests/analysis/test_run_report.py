"A report is the same twice, keeps what is not its own, and shows names of any kind as names."
import pytest
from synthetic import write_run

from evolora.analysis.tables import evolution_sentence, load, summary
from evolora.analysis.run_charts import CHARTS
from evolora.analysis.run_report import report
from evolora.ecology.run_folder import Run


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return write_run(tmp_path_factory.mktemp('runs') / 'synthetic').folder


@pytest.fixture(scope='module')
def data(folder): return load(folder)


def test_the_report_is_the_same_twice_and_all_its_pictures_are_there(folder, data, tmp_path, pictures):
    "Two of them are drawn twice; of the others, what they are drawn from is the same"
    pictures(*CHARTS)
    text, twice = report(folder).read_text(), ['lineage', 'accuracy']
    specs = pictures(*twice)
    again = report(write_run(tmp_path / 'synthetic').folder)
    assert again.read_text() == text and str(tmp_path) not in text
    for name in CHARTS:
        assert f'](charts/{name}.png)' in text
        picture = (folder / 'charts' / f'{name}.png').read_bytes()
        assert picture[:8] == b'\x89PNG\r\n\x1a\n' and len(picture) < 250_000
        assert len(specs[name]) == 2 and len({*specs[name]}) == 1, name
        if name in twice: assert (again.parent / 'charts' / f'{name}.png').read_bytes() == picture
    assert f"| accuracy | {summary(data).loc['accuracy', 'first 5']:.3g} |" in text
    assert f'## Evolution\n\n{evolution_sentence(data)}' in text


def test_a_report_of_somebody_else_is_kept(tmp_path):
    folder = write_run(tmp_path / 'run', generations=2).folder
    (folder / 'report.md').write_text('mine')
    with pytest.raises(ValueError, match='rename it'): report(folder)
    assert (folder / 'report.md').read_text() == 'mine' and not (folder / 'charts').exists()


def test_several_runs_need_a_place_and_get_intervals(folder, tmp_path):
    other = write_run(tmp_path / 'other', seed=1).folder
    with pytest.raises(ValueError, match='name one with out'): report([folder, other])
    text = report([folder, other], tmp_path / 'both').read_text()
    assert '## Mean over seeds' in text and (tmp_path / 'both' / 'charts' / 'accuracy.png').exists()
    assert not (other / 'report.md').exists() and str(tmp_path) not in text
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(ValueError, match='got the file'): report([folder, other], tmp_path / 'file')
    with pytest.raises(ValueError, match='name one'): report([])


def test_runs_of_two_configurations_are_not_averaged(tmp_path):
    folders = [write_run(tmp_path / f'{size}-{seed}', generations=4, size=size, seed=seed).folder
               for size in (8, 9) for seed in (0, 1)]
    text = report(folders, tmp_path / 'all').read_text()
    assert 'Accuracy, mean of 4 runs by configuration: C1: population=8 from' in text
    assert ', C2: population=9 from' in text


def test_a_run_without_a_generation_is_refused(tmp_path):
    Run.create(tmp_path / 'run', config={}, host={'id': 'x'}, seed=0, version='0')
    with pytest.raises(ValueError, match='at least one generation'): report(tmp_path / 'run')
    with pytest.raises(ValueError, match='expected a run folder'): report(tmp_path)


def test_a_folder_name_is_no_markup(tmp_path, pictures):
    pictures()
    folder = write_run(tmp_path / '<img src=x>|[x](y)', generations=2).folder
    head = report(folder).read_text().split('\n\n')[1]
    assert head == '# Run &lt;img src=x&gt;\\|\\[x\\]\\(y)'


def test_what_there_was_none_of_is_left_out_and_named(tmp_path, pictures):
    pictures()
    folder, lines = write_run(tmp_path / 'run', generations=2, size=3).folder, []     # too few for merges and censuses
    text = report(folder, log=lines.append).read_text()
    gone = ['evolution', 'gates', 'turns', 'attempts', 'sleepers', 'archive', 'prices', 'messages', 'reads']
    assert [line for line in lines if line.startswith('leaving')] == [f'leaving out {name}' for name in gone]
    assert not any(f'charts/{name}.png' in text for name in gone) and '## Evolution' not in text
    assert len(lines) == len(CHARTS) + 2


def test_one_generation_and_no_episodes_still_have_a_report(tmp_path, pictures):
    pictures('accuracy', 'cells', 'beliefs')
    folder = write_run(tmp_path / 'one', generations=1).folder
    (folder / 'episodes.jsonl').write_text('')
    (folder / 'ledger.jsonl').write_text('')
    assert report(folder).exists()
