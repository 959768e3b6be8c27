"""Sentences that state a result say what the numbers say. That a run still says the same is test_notebooks's."""
import pytest

from claims import PAGES, differing, planted, plants, read, said, sentences, stale


def notebook(source, *markdown):
    return {'cells': [{'cell_type': 'code', 'id': 'a', 'source': source, 'outputs': [
        {'output_type': 'display_data', 'data': {'text/markdown': text}} for text in markdown]}]}


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.stem)
def test_saved_claims_are_those_of_the_source(path): assert [*stale(read(path))] == []


def test_an_edited_claim_is_found():
    source = "claim('{n:words} of {all} learn', n=2, all=3)\nclaim('Most gain.', True)"
    assert [*stale(notebook(source, 'two of 3 learn', 'Most gain.'))] == []
    assert len([*stale(notebook(source, 'two of 3 forget', 'Most gain.'))]) == 2
    assert len([*stale(notebook(source, 'two of 3 learn', 'All gain.'))]) == 2
    assert len([*stale(notebook(source))]) == 1
    assert len([*stale(notebook(source, 'two of 3 learn'))]) == 1


def test_another_number_is_found_by_a_run():
    source = "claim('{n:words} of {all} learn', n=n, all=3)"
    saved, run = notebook(source, 'two of 3 learn'), notebook(source, 'one of 3 learn')
    assert [*stale(saved)] == [] and [*differing(saved, saved)] == []
    assert [*differing(saved, run)] == [('a', ['two of 3 learn'], ['one of 3 learn'])]


def test_a_claim_that_hides_its_words_is_refused():
    with pytest.raises(ValueError, match='plain text'): sentences(notebook("claim(f'{n} learn')")['cells'][0])


def test_twenty_false_statements_are_found():
    "Each is one word or one number, in what is saved or in what a claim says, drawn over all pages"
    made = [*plants(20)]
    assert len(made) == 20 and [row for row in made if not row[-1]] == []
    assert len({path for path, *_ in made}) > 5 and {kind for _, kind, *_ in made} == {'saved', 'source'}


def test_what_is_planted_differs():
    import random
    nb = notebook("claim('Most of them gain {x:.2f}.', True, x=.5)", 'Most of them gain 0.50.')
    for seed in range(10):
        false, text = planted(nb, random.Random(seed), 'saved')
        assert said(false['cells'][0]) == [text] != said(nb['cells'][0])
