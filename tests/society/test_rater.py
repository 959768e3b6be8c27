"""Thumbs are counted where they belong, draw questions and move money, and simulated ones are told apart."""
import json

import numpy as np
import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Graded
from evolora.host.model import load_host

SMALL = {'founders': 4, 'founder_step': .4, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, **knobs):
    society = {'rater': knobs} if knobs else {}
    return Ecology(host, changed_config(load_config('debug'), SMALL | {'society': society}), seed=5)


def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})


def test_a_persons_thumb_is_counted_in_its_cell_and_moves_money_once(host):
    e = begun(host, share=0., gain=.1)
    e.step()
    part, answer = e.society['rater'], e.history[-1].episodes[0]
    asked = next(q for q, f in part.asked.items() if f == answer['family'])
    e.feedback(answer['organelle'], asked, 'an answer', True)
    e.feedback('o4', 'a question of my own', 'an answer', False)
    before = e.market.balances
    e.controls.config = e.controls.config.model_copy(update={'feedback': 0.})
    part.heard(e.controls.apply(e.generation).feedback)
    assert part.thumbs == {answer['family']: {answer['organelle']: [1., 0.]}, '': {'o4': [0., 1.]}}
    after = e.market.balances
    assert after[answer['organelle']] > before[answer['organelle']] and after['o4'] < before['o4']
    assert e.market.audit().balanced
    part.settled([], [])
    assert e.market.balances == after, 'once'
    part.renew()
    assert [(r['event'], r['numbers']) for r in e.society.rows()] == [('thumbs of people', {'thumbs': 2., 'up': 1.})]


def test_the_simulated_rater_likes_what_is_right_but_for_its_noise_and_is_named(host):
    e = begun(host, simulated=1., wrong=.25, fade=1., gain=0.)
    part = e.society['rater']
    for generation in range(100):
        e.generation = generation
        part.observe([Graded('string.sort', 'q', [1], i % 2 == 0, ('o1', 'o2')[i % 2], .5, 'x', place=i)
                      for i in range(8)])
    (good, bad), (up, down) = part.thumbs['string.sort']['o1'], part.thumbs['string.sort']['o2']
    assert good + bad == up + down == 400 and good / 400 == pytest.approx(.75, abs=.08)
    assert up / 400 == pytest.approx(.25, abs=.08)
    part.renew()
    assert [r['event'] for r in e.society.rows()] == ['simulated thumbs']


def test_the_liked_one_is_asked_for_its_share_of_questions(host):
    e = begun(host, share=.5)
    part, tasks = e.society['rater'], e.put([(c, i) for c in e.cells.values() for i in range(50)])
    assert part.choose(tasks, ['o1'] * 100, range(100)) == ['o1'] * 100, 'nobody gave a thumb yet'
    part.thumbs = {'string.sort': {'o3': [50., 0.], 'o1': [0., 50.], 'o2': [0., 50.], 'o4': [0., 50.]}}
    who = np.array(part.choose(tasks, ['o1'] * 100, range(100)))
    sort = np.array([t.family == 'string.sort' for t in tasks])
    assert (who[~sort] == 'o1').all() and {*who} == {'o1', 'o3'}
    assert (who[sort] == 'o3').mean() == pytest.approx(.5, abs=.2)


def test_thumbs_fade_and_go_with_their_organelle(host):
    e = begun(host, fade=.5)
    part = e.society['rater']
    for up in (True, False, True): part._thumb('string.sort', 'o2', up, 'people')
    assert part.thumbs == {'string.sort': {'o2': [1.25, .5]}}
    e.demography.bury('o2', 0, 'a test')
    assert part.thumbs == {'string.sort': {}}


def test_without_thumbs_no_byte_changes_and_with_them_some_do(host):
    lives = [[tables(e) for _ in range(3)] for e in (begun(host), begun(host, share=1.),
                                                     begun(host, share=1., simulated=1.))]
    assert lives[0] == lives[1] != lives[2]


def test_a_life_goes_on_bit_for_bit_and_damage_is_refused(host, tmp_path):
    knobs = dict(share=.6, simulated=.7)
    one, two = begun(host, **knobs), begun(host, **knobs)
    one.run(2, log=None)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    for _ in range(2):
        assert tables(one) == tables(two) and one.history[-1].society == two.history[-1].society
    assert one.market.audit().balanced
    part = one.society['rater']
    for wrong in ({'thumbs': {'string.sort': {'gone': [1., 2.]}}}, {'thumbs': {'string.sort': {'o1': [1., -2.]}}},
                  {'asked': {'q': 'no family'}}, {'counts': {'people': [0, 0]}}):
        with pytest.raises(ValueError, match='restore the state from a copy'): part.restore(part.state() | wrong)
