"""What holds for every part of the library: knobs that are explained, results that it decides, a life that goes on."""
import json

import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import _LIBRARY, checked_parts, part_named
from evolora.experiments.study_code import _DECIDING
from evolora.host.model import load_host

ALL = {'archive': {'odds': 1.5, 'most': 3}, 'allocation': {'rule': 'sharing'}, 'guard': {'cap': .5, 'gini': .4},
       'morphogenesis': {'budget': 24, 'every': 1, 'used': 0.},
       'hazard': {'chance': .1, 'toll': .02, 'year': 2, 'length': 1, 'save': .1},
       'board': {'read': .5, 'shuffle': .4},
       'cache': {'read': .4, 'shuffle': .4}, 'latent': {'read': .4, 'shuffle': .4},
       'colony': {'probe': 1., 'answer': 'verifier'}, 'pot': {},
       'migration': {'to': [1], 'every': 2}, 'policy': {'every': 2}, 'rater': {'simulated': .5, 'share': .4}}
LIFE = {'founders': 3, 'blocks': 2, 'founder_step': .4, 'capacity': 4, 'rank': 4, 'max_rank': 8, 'max_new_tokens': 12,
        'cells': ['string.sort:1', 'word.count:1'], 'world': {'worlds': 3, 'period': 2}, 'variation': {'every': 3},
        'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1, 'met': 16, 'recruit': True}}


@pytest.fixture(scope='module')
def habits(): return load_host('habits', threads=1)


@pytest.mark.parametrize('name', _LIBRARY)
def test_every_part_has_at_most_six_knobs_and_each_is_explained(name):
    fields = part_named(name).Config.model_fields
    assert 1 <= len(fields) <= 6 and all(field.description for field in fields.values())
    assert checked_parts({name: None}) == {name: {k: f.default for k, f in fields.items()}}


def test_parts_decide_what_a_cell_of_a_study_holds():
    assert {path.split('.')[1] for path in _LIBRARY.values()} <= {*_DECIDING}


def test_a_life_with_everything_on_goes_on_bit_for_bit(habits, tmp_path):
    assert {*ALL} == {*_LIBRARY}
    config = changed_config(load_config('worlds'), LIFE | {'society': ALL})
    one = Ecology(habits, config, seed=1)
    one.run(3, log=None)
    colonies = one.society['colony']
    for c in colonies.colonies[:1]:                             # no team is promoted in so short a life
        colonies.tests.close(c.test, 1e9)
        c.promoted, c.differences = True, []
    one.step()
    accounts = {name for b in one.market.books.values() for name in b.aside}
    assert any('pot' in name for name in accounts) and any('reserve' in name for name in accounts)
    two = Ecology(habits, config, seed=1)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    events = set()
    for _ in range(5):
        a, b = (json.dumps({k: v for k, v in e.step().tables.items() if k != 'timings'}) for e in (one, two))
        assert a == b
        events |= {row['part'] for row in one.history[-1].society}
    assert one.market.audit().balanced and events >= {'guard', 'morphogenesis', 'board', 'cache', 'latent', 'colony',
                                                        'policy'}
