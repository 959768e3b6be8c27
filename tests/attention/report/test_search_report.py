"The page of a search claims no more than was measured, is the same twice, and shows texts of any kind as text."
import json
import re

import pytest
from endless import MADE, instead
from rendered import strange
from searches import HOSTILE, findings, rows, write_hostile, write_search

from evolora.attention.report import search_report
from evolora.attention.report.search_report import Account, account, compared, headline
from evolora.attention.report.records import operators, read_search


@pytest.fixture
def unpainted(monkeypatch):
    "Pages whose charts are made and not painted, which takes most of the time"
    monkeypatch.setattr(search_report, 'save_chart', lambda chart, path: path)


def record_of(tmp_path, name='x', history=None, found=None, **config):
    return read_search(write_search(tmp_path / name, history, found=found, **config))


def test_without_a_second_look_nothing_is_claimed(tmp_path):
    text = headline(record_of(tmp_path))
    assert text.startswith("**Not yet re-scored: these figures have the winner's curse in them.**")
    assert 'is better than' not in text and 'not known' in text


@pytest.mark.parametrize('true, words', [(.03, 'is better than softmax attention'), (-.05, 'is worse than'),
                                         (0., 'is not shown to be better than')])
def test_the_headline_is_the_result_on_fresh_seeds(tmp_path, true, words):
    history = rows()
    record = record_of(tmp_path, history=history, found=findings(history, true=true))
    first = record.findings.winners[0]
    assert f'**Candidate {record.best} {words}' in headline(record) and first.index == record.best
    text = headline(record)
    assert f'{first.gain.low:+.4f} … {first.gain.high:+.4f}' in text and '3 fresh seeds' in text


@pytest.mark.parametrize('kept', [['ensemble', 'ablation'], []])
def test_findings_without_anything_trained_again_say_so(tmp_path, kept):
    history = rows()
    found = {name: part for name, part in findings(history).items() if name in kept}
    told = Account(record_of(tmp_path, history=history, found=found)).sections['On fresh seeds']
    assert told[0] == 'Nothing was trained again on fresh seeds.'


def test_an_interval_by_seeds_that_holds_zero_is_in_the_headline(tmp_path):
    history = rows()
    found = findings(history, true=.03)
    found['winners'][0]['gain'] |= {'seed_low': -.01, 'seed_high': .07}
    text = headline(record_of(tmp_path, history=history, found=found))
    assert 'is better than' in text and '-0.0100 … +0.0700, which holds 0: more seeds are needed' in text


def test_nothing_found_is_in_the_headline(unpainted, tmp_path):
    history = rows(12, fails=0)
    worse = [row if not i else row | {'score': .1} for i, row in enumerate(history)]
    assert 'Nothing was found' in headline(record_of(tmp_path, 'a', worse))
    failed = [row | {'status': 'crashed', 'score': None, 'measured': {}} for row in history]
    assert 'none of 13 candidates has a score' in headline(record_of(tmp_path, 'b', failed))
    for name in 'ab': assert account(tmp_path / name).exists() and not (tmp_path / name / 'winner.py').exists()
    assert account(folder := write_search(tmp_path / 'c', rows(0))).exists() and folder


def test_nothing_found_stays_so_on_fresh_seeds(unpainted, tmp_path):
    history = rows(12, fails=0)
    worse = [row if not i else row | {'score': .1 + .001 * i} for i, row in enumerate(history)]
    text = headline(record_of(tmp_path, history=worse, found=findings(worse, true=-.05)))
    assert text.startswith('**Nothing was found:** no candidate scored above') and 'is worse than' in text
    assert account(tmp_path / 'x').exists() and not (tmp_path / 'x' / 'winner.py').exists()


@pytest.mark.parametrize('true, kept', [(.03, True), (0., True), (-.05, False)])
def test_a_winner_that_is_worse_is_not_left_as_a_file(unpainted, tmp_path, true, kept):
    history = rows()
    folder = write_search(tmp_path / 'x', history, found=findings(history, true=true))
    account(folder)
    assert (folder / 'winner.py').exists() == kept
    best = read_search(folder).best
    assert not kept or (folder / 'winner.py').read_text() == history[best]['source']


def test_a_winner_that_fails_on_fresh_seeds_is_reported_and_is_not_left_as_a_file(unpainted, tmp_path):
    history = rows()
    found = findings(history, true=.03)
    lost = dict(status='diverged', why='the loss was nan at step 7 of 800\x1b[2J', gain=None, fit=None, losses={})
    found['winners'][0] |= lost
    found['controls']['mean'] |= lost
    text = account(write_search(tmp_path / 'x', history, found=found)).read_text()
    assert '** on 3 fresh seeds: diverged, the loss was nan at step 7 of 800' in text and '\x1b' not in text
    assert 'is better than softmax' not in text.split('##')[0] and not (tmp_path / 'x' / 'winner.py').exists()
    [line] = [line for line in text.split('\n') if line.startswith('| control mean')]
    assert '| diverged |' in line
    for control in found['controls'].values(): control |= lost
    assert 'No control was scored.' in account(write_search(tmp_path / 'y', history, found=found)).read_text()


@pytest.mark.parametrize('slopes, words', [
    ([.1, .2, .9, .3], 'Both scores have candidate 2 first, of 4.'),
    ([.1, .2, .3, .9], 'By gain, candidate 2 is first; by slope it is 3, which is number 2 by gain, of 4.'),
    ([.9, .2, .3, .1], 'By gain, candidate 2 is first; by slope it is 0, which is number 4 by gain, of 4.'),
    ([None] * 4, 'Nothing was scored in both ways.')])
def test_where_the_two_scores_disagree_the_place_by_the_other_is_given(tmp_path, slopes, words):
    history = rows(3, fails=0)
    for row, gain, slope in zip(history, [.1, .5, .9, .7], slopes):
        row['measured']['scores'] = {'paired_gain': gain} | ({} if slope is None else {'slope': slope})
    assert Account(record_of(tmp_path, history=history)).sections['Gain and slope'][0] == words


def test_how_well_a_line_fits_is_shown_for_all_that_was_measured_again(unpainted, tmp_path):
    history = rows()
    text = account(write_search(tmp_path / 'x', history, found=(found := findings(history)))).read_text()
    [line] = [line for line in text.split('\n') if line.startswith(f"| candidate {found['winners'][0]['index']} |")]
    fit = found['winners'][0]['fit']
    assert f"| {fit['r2']:.3f} | {fit['lack_of_fit']:.3f} |" in line and '| R² | lack of fit, p |' in text


def test_other_data_on_fresh_seeds_is_reported(unpainted, tmp_path):
    history = rows()
    same = {'torch': '2.13.0', 'corpus': 'standard library'}
    for name, facts, words in (('a', same, ''), ('c', {}, ''),
                               ('b', same | {'corpus': 'other'}, 'Not as in the search: corpus.')):
        write_search(tmp_path / name, history, found=findings(history) | {'facts': facts})
        text = account(tmp_path / name).read_text()
        assert words in text and (words or 'Not as in the search' not in text)


def test_the_control_is_compared_on_the_same_seeds(tmp_path):
    mine, theirs = rows(), rows(seed=5, control=True)
    a = record_of(tmp_path, 'a', mine, findings(mine, true=.04))
    b = record_of(tmp_path, 'b', theirs, findings(theirs, true=0.), control=True)
    assert 'is better than that of the control, seed by seed' in compared(a, b)
    assert 'is worse than that of the control, seed by seed' in compared(b, a)
    assert 'no control' in compared(b, a) and 'no control' not in compared(a, b)
    other = record_of(tmp_path, 'c', theirs, findings(theirs, seeds=(1, 2, 3, 4), true=.04), control=True)
    assert 'is not shown to differ from that of the control' in compared(a, other)
    assert 'seed by seed' not in compared(a, other)
    raw = record_of(tmp_path, 'd', rows(12, seed=5, control=True), control=True, tier='tiny')
    assert 'nothing can be concluded yet' in compared(a, raw)
    assert 'tier: small here, tiny there' in compared(a, raw) and '36 candidates here, 12 there' in compared(a, raw)


def test_findings_of_another_search_are_refused(tmp_path):
    history = rows()
    found = findings(history)
    found['winners'][0]['digest'] = 'x'
    folder = write_search(tmp_path / 'x', history, found=found)
    with pytest.raises(ValueError, match='expected candidates of this search'): account(folder)
    assert not (folder / 'report.md').exists() and not (folder / 'charts').exists()


def test_the_page_is_whole_and_the_same_twice(tmp_path, monkeypatch):
    history = rows()
    folder = write_search(tmp_path / 'x', history, found=findings(history))
    control = write_search(tmp_path / 'y', rows(seed=5, control=True), control=True)
    path = account(folder, control)
    text, pictures = path.read_text(), sorted((folder / 'charts').iterdir())
    monkeypatch.setattr(search_report, 'save_chart', lambda chart, path: path)
    assert account(folder, control).read_text() == text and str(tmp_path) not in text
    assert {f'charts/{p.name}' for p in pictures} == set(re.findall(r'\]\((charts/\w+\.png)\)', text))
    assert len(pictures) == 9 and all(p.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n' for p in pictures)
    for title in ('How it went', 'The best of the search', 'Gain and slope', 'Proposals by operator', 'On fresh seeds'):
        assert f'\n## {title}\n' in text
    table = text.partition('## Proposals by operator')[2].split('\n\n')[1]
    assert all(f' {name} ' in table.partition('\n')[0] for name in ('proposed', 'repeated', 'valid', 'new', 'success'))
    assert all(f'| {name} |' in table for name in operators(history).index)
    assert 'def ' in text.partition('## The program')[2] and 'fooled by: handicapped' in text
    assert 'curse' not in text.partition('## How it went')[2]


def test_what_was_not_done_is_reported(unpainted, tmp_path):
    text = account(write_search(tmp_path / 'x', end=None)).read_text()
    assert 'It has not ended, or was interrupted' in text and 'charts/ensemble' not in text
    assert 'Not yet re-scored' in text.partition('## On fresh seeds')[2]


def test_a_report_that_evolora_did_not_write_is_kept(tmp_path):
    folder = write_search(tmp_path / 'x', rows(3))
    (folder / 'report.md').write_text('mine')
    with pytest.raises(ValueError, match='rename it'): account(folder)
    assert (folder / 'report.md').read_text() == 'mine' and not (folder / 'charts').exists()
    with pytest.raises(ValueError, match='no history.jsonl'): account(tmp_path)


@pytest.mark.parametrize('make', MADE[:3])
def test_no_report_is_looked_for_in_what_never_ends(tmp_path, make):
    folder = write_search(tmp_path / 'x', rows(3))
    instead(folder / 'report.md', make)
    with pytest.raises(ValueError, match='expected a file'): account(folder)


def test_no_chart_is_written_through_a_link(tmp_path):
    folder = write_search(tmp_path / 'x', rows(3))
    (tmp_path / 'elsewhere').mkdir()
    (folder / 'charts').symlink_to(tmp_path / 'elsewhere')
    with pytest.raises(ValueError, match='got the link'): account(folder)
    assert not [*(tmp_path / 'elsewhere').iterdir()] and not (folder / 'report.md').exists()


def outside(text):
    "What is not the program, which stands in a fence of its own"
    head, _, tail = text.partition('## The program')
    fence = re.search(r'\n(`{3,})python\n', tail)[1]
    program, _, rest = tail.partition(f'{fence}python\n')[2].partition(f'\n{fence}\n')
    assert fence not in program and not rest.strip()
    return head


def test_hostile_texts_are_text(unpainted, tmp_path):
    text = account(write_hostile(tmp_path / '<b>|x')).read_text()
    for sign in ('<script', '<img', '\x1b', '\u202e', '\ud800', '\n# heading'):
        assert sign not in outside(text), sign
    assert not re.search(r'\]\((?!charts/)', outside(text)) and strange(text) == []
    assert 'nnnnnnn' * 30 not in text and max(map(len, outside(text).split('\n'))) < 2000
    assert '\x1b' not in text and '\u202e' not in text


@pytest.mark.parametrize('text', HOSTILE)
def test_no_program_leaves_its_fence(unpainted, tmp_path, text):
    history = rows(2, fails=0)
    for row in history: row['source'] = f'{text}\n{"`" * 5}\n# heading'
    page = account(write_search(tmp_path / 'x', history)).read_text()
    assert '# heading' not in outside(page).replace('## ', '')


def test_a_bare_account_is_its_headline(tmp_path):
    text = Account(record_of(tmp_path))._repr_markdown_()
    assert text.startswith('### Search x\n\n**Not yet') and len(text) < 1000 and json.dumps(text)


@pytest.mark.parametrize('end,version,published', [('the budget is spent', 4, True), (None, 4, False),
                                                   ('the budget is spent', 3, False)])
def test_the_secret_of_an_exam_is_published_when_the_search_is_over(tmp_path, monkeypatch, end, version, published):
    monkeypatch.setattr(search_report, 'save_chart', lambda chart, path: path)
    write_search(tmp_path / 'a', rows(4), end=end, facts={'version': version}, secret='sesame and others')
    page = account(tmp_path / 'a').read_text()
    assert ('sesame' in page) is published and ('not published' in page) is not published
    assert ('Measured in the old way' in page) is (version < 4)
