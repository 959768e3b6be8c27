"""Messages cost what they cost, reach whom they reach, and are told apart from shuffled ones by lot."""
import json
from math import fsum

import pytest
import torch

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Graded
from evolora.host.model import load_host
from evolora.organelles.handing import Handed, answers
from evolora.society.channel import Post, nearest, shuffled, similar

SMALL = {'founders': 4, 'founder_step': .4, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}
Q = ['Sort the letters: cba', 'Sort the letters: fed', 'Sort the letters: ihg']


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, name='board', **knobs):
    changes = SMALL | {'society': {name: knobs} if knobs else {}} | ({'blocks': None} if name == 'latent' else {})
    return Ecology(host, changed_config(load_config('debug'), changes), seed=5)


def posted(host, posts, name='board', **knobs):
    e = begun(host, name, read=1., **knobs)
    part = e.society[name]
    for who, q, a in posts: part.examples.add('string.sort', Post(who, 'string.sort', q, a, 0))
    return e, part


def put(part, who, questions=Q[2:], copies=1):
    places = [i for i in range(len(questions)) for _ in range(copies)]
    return part.prompts(['string.sort'] * len(places), [who] * len(places), places,
                        [q for q in questions for _ in range(copies)])


# --- who gets what

def test_a_reader_gets_the_latest_post_of_another_one_in_front_of_its_question(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def'), ('o2', 'Sort the letters: zy', 'yz')], shuffle=0.)
    assert put(part, 'o2') == [(Q[1], 'def', Q[2])] and part.reads[0].author == 'o3'
    assert put(part, 'o3') == [('Sort the letters: zy', 'yz', Q[2])]


def test_copies_of_an_answer_read_the_same(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=.5)
    found = put(part, 'o2', Q[2:] * 6, copies=3)
    assert all(len({*found[i:i + 3]}) == 1 for i in range(0, 18, 3)) and len(part.reads) == 6


def test_a_shuffled_message_has_the_answer_of_another_post(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=1.)
    assert put(part, 'o2') == [(Q[1], 'abc', Q[2])] and part.reads[0].kind == 'shuffled'
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'abc')], shuffle=1.)
    assert put(part, 'o2') == Q[2:] and not part.reads, 'all answers are the same: nothing can be shuffled'
    posts = [Post('o1', 'f', str(i), str(i % 3), 0) for i in range(9)]
    for i in range(9):
        for draw in (0., .3, .99): assert shuffled(posts, i, draw).answer != posts[i].answer


def test_the_cache_gives_the_most_similar_question_and_never_the_question_itself(host):
    e, part = posted(host, [('o2', 'Sort the letters: ihx', 'hix'), ('o3', Q[2], 'ghi'), ('o1', 'How many', '3')],
                     'cache', shuffle=0.)
    assert put(part, 'o2') == [('Sort the letters: ihx', 'hix', Q[2])], 'its own, too; but not the answer itself'
    assert nearest(['abc', 'abd', 'xyz'], 'abc') == 0 and nearest(['abd', 'abd'], 'abc') == 1
    assert similar('abc', 'abc') == 1. and similar('abc', 'xyz') == 0.


def test_how_many_get_messages_and_how_many_of_them_are_shuffled_is_drawn_by_lot(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=.25)
    part.config = part.config.model_copy(update={'read': .5})
    kinds = []
    for generation in range(60):
        e.generation = generation
        put(part, 'o2', Q[2:] * 10)
        kinds += [read.kind for read in part.reads.values()]
    assert len(kinds) == pytest.approx(300, abs=45) and kinds.count('shuffled') == pytest.approx(75, abs=30)


def test_a_question_without_a_message_counts_as_one_only_if_there_could_have_been_one(host):
    e, part = posted(host, [('o1', Q[0], 'abc')])
    put(part, 'o2')
    assert part.kinds == {0: 'unserved'}, 'one post cannot be shuffled'
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')])
    part.config = part.config.model_copy(update={'read': 0.})
    put(part, 'o2')
    assert part.kinds == {0: 'none'} and not part.reads


def test_who_cannot_pay_gets_nothing(host, monkeypatch):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=0., fee=.05)
    monkeypatch.setattr(e.market, 'belief', lambda family: {'o2': .04, 'o4': .5})
    assert put(part, 'o2') == Q[2:] and len(put(part, 'o4')[0]) == 3


def test_a_message_that_leaves_no_room_is_not_delivered(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', 'Sort the letters: ' + 'x' * 5000, 'def')], shuffle=0.)
    assert put(part, 'o2') == Q[2:]


# --- keys and values

POSTS = [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')]


def test_a_latent_message_is_the_same_text_read_by_its_author(host):
    e, part = posted(host, POSTS, 'latent', shuffle=0.)
    prompt, = put(part, 'o2')
    assert isinstance(prompt, Handed) and prompt == (Q[1], 'def', Q[2]) and prompt.reader == 'o3'
    shuffled_one, = put(posted(host, POSTS, 'latent', shuffle=1.)[1], 'o2')
    assert shuffled_one == (Q[1], 'abc', Q[2]) and shuffled_one.reader == 'o3'


def test_a_latent_message_changes_what_its_reader_answers_and_who_has_read_it_counts(host):
    e, part = posted(host, POSTS, 'latent', shuffle=0.)
    for n, id in enumerate(e.population.ids):       # adapters that differ
        e.population.write(id, {k: (A, B + .1 * (n + 1) * torch.ones_like(B)) for k, (A, B)
                                in e.population.factors(id).items()})
    prompt, = put(part, 'o2')
    asked = [prompt, Handed(prompt, 'o2'), tuple(prompt), Q[2]]
    made = answers(e.population, asked, ['o2'] * 4, seeds=[0] * 4, temperature=0., max_new_tokens=1)
    handed, by_itself, as_text, without = (p for p, in made.logprobs)
    assert abs(by_itself - as_text) < 1e-4 < abs(handed - as_text) and abs(as_text - without) > 1e-4


def test_nobody_learns_from_what_was_handed_over_and_others_are_scored_as_if_they_had_read_it(host):
    e, part = posted(host, [(w, f'Sort the letters: {x}', ''.join(sorted(x))) for w in ('o1', 'o2', 'o3', 'o4')
                            for x in (f'zyx{w[1]}', f'cba{w[1]}')], 'latent', shuffle=0., fee=0.)
    for p in part.examples.of('string.sort'): part.examples.add('word.count', p._replace(family='word.count'))
    seen, rows = [], []
    learn, settle = e.plasticity.learn, e.serving.settle
    e.plasticity.learn = lambda lesson, **how: (seen.extend(lesson.prompts), learn(lesson, **how))[1]
    e.serving.settle = lambda given: (rows.extend(a.prompt for a in given), settle(given))[1]
    e.step()
    handed = [p for p in rows if isinstance(p, tuple)]
    assert handed and not any(type(p) is Handed for p in rows)
    assert not {*handed} & {*seen}
    assert sum(n for k, (n, _) in part.right.items()) == 0, 'counted and noted'


def test_latent_messages_are_refused_where_they_carry_nothing(host):
    config = changed_config(load_config('debug'), SMALL | {'targets': ['o_proj', 'down_proj'],
                                                           'society': {'latent': {}}})
    with pytest.raises(ValueError, match='or below the last block, got only o_proj, down_proj'): Ecology(host, config)
    foreign = load_host('embedded', threads=1)
    foreign.keeps = False
    with pytest.raises(ValueError, match='common layout'): Ecology(foreign, changed_config(config, {'blocks': None}))


def test_a_prompt_that_was_handed_over_gets_nothing_in_front_of_it(host):
    e, part = posted(host, POSTS, shuffle=0.)
    prompt = Handed(('q', 'a', Q[2]), 'o1')
    assert put(part, 'o2', [prompt]) == [prompt] and part.kinds == {0: 'unserved'}


# --- what it costs, and what is posted

def test_the_fee_is_paid_once_a_question_to_the_author_and_nothing_is_lost(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=0., fee=.02)
    put(part, 'o2', Q[2:], copies=4)
    before = e.market.belief('string.sort')
    part.settled([], [])
    after = e.market.belief('string.sort')
    assert after['o2'] == pytest.approx(before['o2'] - .02) and after['o3'] == pytest.approx(before['o3'] + .02)
    part.settled([], [])
    assert e.market.belief('string.sort') == after, 'once'
    for book in e.market.books.values(): assert fsum(book.stakes.values()) == book.total
    part.renew()
    read, counts = e.society.rows()
    assert (read['organelle'], read['others'], read['numbers']) == ('o2', ['o3'], {'messages': 1., 'paid': .02})


def test_right_answers_are_posted_once_and_counted_by_what_was_read(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=0.)
    prompt, = put(part, 'o2')
    part.observe([Graded('string.sort', prompt, [1], True, 'o2', .5, 'ghi', place=0),
                  Graded('string.sort', 'Sort the letters: zyx', [1], False, 'o2', .5, 'zzz', place=1)])
    assert part.right == {'real': [1, 1], 'shuffled': [0, 0], 'none': [0, 0], 'unserved': [1, 0]}
    assert part.examples.of('string.sort')[2:] == (Post('o2', 'string.sort', Q[2], 'ghi', 0),)
    part.observe([Graded('string.sort', Q[2], [1], True, 'o4', .5, 'ghi', place=2)])
    assert len(part.examples.of('string.sort')) == 3


def test_posts_are_forgotten_with_time_and_with_their_author(host):
    e, part = posted(host, [('o2', Q[0], 'abc'), ('o3', Q[1], 'def')], keep=2, most=2)
    e.generation = 1
    part.renew()
    assert len(part.examples.of('string.sort')) == 2
    e.demography.bury('o2', 1, 'a test')
    assert [p.author for p in part.examples.of('string.sort')] == ['o3']
    e.generation = 2
    part.renew()
    assert not part.examples.of('string.sort')
    for i in range(5): part.observe([Graded('string.sort', f'{i}', [1], True, 'o1', .5, 'x', place=i)])
    assert [p.question for p in part.examples.of('string.sort')] == ['3', '4']


def test_a_post_that_misleads_is_dropped_and_a_shuffled_one_says_nothing_of_it(host):
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=0., drop=2)
    def wrong():
        prompt, = put(part, 'o2')
        part.observe([Graded('string.sort', prompt, [1], False, 'o2', .5, 'zzz')])
    wrong()
    assert len(part.examples.of('string.sort')) == 2
    wrong()
    assert [p.author for p in part.examples.of('string.sort')] == ['o1'], 'the latest one was read twice'
    e, part = posted(host, [('o1', Q[0], 'abc'), ('o3', Q[1], 'def')], shuffle=1., drop=1)
    put(part, 'o2')
    part.observe([Graded('string.sort', Q[2], [1], False, 'o2', .5, 'zzz')])
    assert part.kinds == {0: 'shuffled'} and len(part.examples.of('string.sort')) == 2


def test_a_checkpoint_without_counts_is_read(host):
    e, part = posted(host, POSTS)
    state = part.state() | {'posts': [row[1:-1] for row in part.state()['posts']]}
    _, again = posted(host, [])
    again.restore(state)
    assert again.state() == part.state()


# --- a life

def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})


def test_without_readers_no_byte_changes_and_with_them_some_do(host):
    free, silent, loud = begun(host), begun(host, read=0.), begun(host, read=1.)
    lives = [[tables(e) for _ in range(3)] for e in (free, silent, loud)]
    assert lives[0] == lives[1] != lives[2]
    assert sum(loud.history[-1].row['gflops'].values()) != sum(free.history[-1].row['gflops'].values())


@pytest.mark.parametrize('name', ['board', 'cache', 'latent'])
def test_a_life_goes_on_bit_for_bit(host, name, tmp_path):
    one = begun(host, name, read=.8, shuffle=.5, fee=.01)
    one.run(2, log=None)
    two = begun(host, name, read=.8, shuffle=.5, fee=.01)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    for _ in range(2):
        assert tables(one) == tables(two) and one.history[-1].society == two.history[-1].society
    assert one.market.audit().balanced


def test_damaged_posts_are_refused(host):
    e, part = posted(host, [('o1', Q[0], 'abc')])
    good = part.state()
    for wrong in ({'posts': [['o1', 'f', 'q', 'a', 0]]}, {'posts': [['o1', 'string.sort', 5, 'a', 0]]},
                  {'right': {k: [1, -1] for k in ('real', 'shuffled', 'none', 'unserved')}},
                  {'paid': [['o1', 'o2', 1.5]]}):
        with pytest.raises(ValueError, match='restore the state from a copy'): part.restore(good | wrong)
    part.restore(good)
    assert part.state() == good
