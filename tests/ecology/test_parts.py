"""Parts of society: switched on by name, told in order, and without a trace where they are not."""
import json

import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import SOCIETY, Bill, Part, PartConfig, register_part
from evolora.host.model import load_host

SMALL = {'market': {'questions': 6, 'round': 2, 'learn_every': 1}, 'max_new_tokens': 12}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


class Idle(Part):
    "Does nothing"


class Diary(Part):
    "Writes down when it is told what"
    class Config(PartConfig):
        price: float = 0.

    def __init__(self, ecology, config):
        super().__init__(ecology, config)
        self.told = []

    def observe(self, answers): self.told.append(f'observe {len(answers)}')

    def settled(self, answers, prices):
        assert len(answers) == len(prices) and all(0 <= p <= 1 for p in prices)
        self.told.append(f'settled {len(answers)}')
        return Bill(self.config.price, 2 * self.config.price)

    def renew(self):
        self.told.append('renew')
        self.note('renewed', self.ecology.population.ids[0], n=len(self.told))
        return Bill(self.config.price, self.config.price)

    def leaves(self, one): self.told.append(f'{one.id} leaves')
    def state(self): return {'told': self.told}
    def restore(self, state): self.told = [str(x) for x in state['told']]


@pytest.fixture
def registered():
    for name, part in (('idle', Idle), ('diary', Diary)): register_part(name, part, replace=True)
    yield
    for store in (SOCIETY, SOCIETY.own):
        for name in ('idle', 'diary'): store.pop(name, None)


def lived(host, society, generations=2, **more):
    e = Ecology(host, changed_config(load_config('debug'), SMALL | {'society': society} | more), seed=3)
    return e, [json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})
               for _ in range(generations)]


def test_a_part_that_does_nothing_leaves_no_trace(host, registered):
    assert lived(host, {})[1] == lived(host, {'idle': {}})[1]


def test_what_has_no_part_is_what_it_was_before_there_were_parts(host):
    config = changed_config(load_config('debug'), SMALL)
    assert 'society' not in config.model_dump()
    e = Ecology(host, config)
    e.step()
    assert not e.society.state() and e.history[-1].society == []


def test_parts_are_told_in_order_and_their_bills_are_paid(host, registered):
    e, _ = lived(host, {'diary': {'price': 5.}}, 1)
    bare, _ = lived(host, {}, 1)
    assert e.society['diary'].told == ['observe 2', 'settled 2'] * 3 + ['renew']
    ours, theirs = e.history[-1].row['gflops'], bare.history[-1].row['gflops']
    assert ours['score'] - theirs['score'] == pytest.approx(20.)
    assert ours['alone'] - theirs['alone'] == pytest.approx(35.)
    assert e.history[-1].society == [dict(generation=0, part='diary', event='renewed', organelle='o1', others=[],
                                          numbers={'n': 7.})]


def test_a_part_is_told_before_an_organelle_is_gone(host, registered):
    e, _ = lived(host, {'diary': {}}, 1)
    e.demography.bury('o2', 1, 'a test')
    assert e.society['diary'].told[-1] == 'o2 leaves'


def test_parts_are_part_of_a_checkpoint(host, registered, tmp_path):
    e, _ = lived(host, {'diary': {}, 'idle': {}})
    two = Ecology(host, e.config, seed=3)
    read_checkpoint(write_checkpoint(tmp_path, e), two)
    assert two.society['diary'].told == e.society['diary'].told
    bare = Ecology(host, changed_config(load_config('debug'), SMALL), seed=3)
    with pytest.raises(ValueError, match='expected the state of no parts, got that of diary, idle'):
        bare.society.restore(e.society.state())


def test_a_part_of_yours_is_in_the_hashes(host, registered):
    e, _ = lived(host, {'diary': {}}, 1)
    assert e.hashes()['part of society diary'] == SOCIETY.own['diary']
    assert not [k for k in lived(host, {}, 1)[0].hashes() if 'society' in k]


@pytest.mark.parametrize('society, words', [
    (3, 'expected parts by name, got 3'), ({'archives': {}}, "expected a part of society (archive"),
    ({'archive': 5}, 'expected knobs by name, got 5'),
    ({'archive': {'odd': 5}}, 'archive.odd: unknown key, is odds meant?; known: keep'),
    ({'archive': {'most': 0}}, 'archive.most'), ({'archive': {'keep': 'all'}}, 'archive.keep')])
def test_what_is_no_part_is_refused_in_a_line(society, words):
    with pytest.raises(ValueError) as error: changed_config(load_config('debug'), {'society': society})
    assert words in str(error.value)
