"""A configuration that cannot be got wrong: whatever is changed is checked, and what was meant is said."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolora.ecology.config import EcologyConfig, PRESETS, load_config, preset_of, settings
from evolora.ecology.ecology import Ecology
from evolora.host.model import tiny_host

ALL = sorted(p.stem for p in PRESETS.glob('*.yaml'))


@pytest.mark.parametrize('changes, said', [
    ({'plastisity': 3}, 'is plasticity meant'), ({'plasticity': {'step': .1}}, 'it is called plasticity.learning_rate'),
    ({'learning_rate': .1}, 'is plasticity.learning_rate meant'), ({'founders': 99}, 'at most capacity'),
    ({'plasticity.rule': 'hebbian'}, 'change the targets'), ({'market.bet': 'much'}, 'market.bet'),
    ({'market': 3}, 'market'), ({'cells': ['maths:1']}, 'task family'), ({'market.bet.more': 1}, 'market.bet'),
    ({'.'.join('a' * 5000): 1}, "'a.a.a"),
    ({'market': {'.'.join('a' * 5000): 1}}, "'a.a.a"), ({'market': {'': 1}}, "'': unknown"),
    ({'.market': 1}, "'.market'"), ({'market..bet': 1}, "'market..bet'"),
    ({'society.nobody': {}}, 'nobody'), ({'': 1}, 'unknown key'), ({'rank': float('nan')}, 'rank')])
@pytest.mark.parametrize('way', ['but', 'model_copy'])
def test_what_does_not_fit_is_one_line(changes, said, way):
    config = load_config('debug')
    with pytest.raises(ValueError) as error:
        config.but(changes) if way == 'but' else config.model_copy(update=changes)
    assert said in str(error.value) and '\n' not in str(error.value)


@given(st.text(max_size=40))
def test_no_name_is_a_traceback(name):
    try: EcologyConfig().but({name: 1})
    except ValueError as error: assert '\n' not in str(error) and len(str(error)) < 2000


@pytest.mark.parametrize('name', ALL)
def test_what_is_said_of_a_preset_is_what_it_is(name):
    config, rows = load_config(name), settings(load_config(name))
    own = {row['setting']: row['value'] for row in rows if row['value'] != row['default']}
    assert EcologyConfig().but(own) == config, 'nothing is left out, and nothing is said twice'
    assert all(row['unit'] and row['meaning'] for row in rows)
    assert all(f'{key}=' in repr(config) for key in own) and repr(config).count('=') >= len(own)


def test_sections_names_and_models_are_the_same_change():
    config = load_config('ecology')
    one = config.but(market=dict(bet=.5, even=.1))
    assert one == config.but({'market.bet': .5, 'market.even': .1}) == config.but(market=one.market)
    assert one.market.contest == config.market.contest and config.but() == config == config.but({})
    assert config.but({'variation.operators': {'direction': 1.}}).variation.operators == {
        'direction': 1.}, 'replaced as a whole'
    both = config.but(society={'guard': {}}).but({'society.archive': {'odds': 9.}})
    assert {*both.society} == {'guard', 'archive'} and not both.but(society={}).society


def test_its_display_does_nothing():
    evil = load_config('debug').but({'form.system': '<img src=x onerror=alert(1)>', 'traits.niche': '</table><script>'})
    assert '<img' not in evil._repr_html_() and '<script' not in evil._repr_html_()
    assert evil._repr_html_().count('<details>') > 8


def test_an_ecology_takes_a_preset_by_its_name(tmp_path):
    (tmp_path / 'mine.yaml').write_text((PRESETS / 'debug.yaml').read_text())
    named, filed, usual = (Ecology(tiny_host(), c) for c in ('debug', tmp_path / 'mine.yaml', load_config('debug')))
    assert named.config == filed.config == usual.config
    with pytest.raises(ValueError, match='expected a preset'): Ecology(tiny_host(), 'debgu')
    with pytest.raises(ValueError, match='got a dict'): Ecology(tiny_host(), {'founders': 1})


def test_a_preset_is_known_by_its_configuration():
    for path in PRESETS.glob('*.yaml'):
        found = preset_of(load_config(path.stem))
        assert found == path.stem == preset_of(load_config(path.stem).model_dump(mode='json'))
    assert preset_of(load_config('debug').but(founders=3)) is None and preset_of({'founders': 'x'}) is None


def test_founders_adapt_no_more_blocks_than_have_adapters():
    config = load_config('debug')
    with pytest.raises(ValueError, match='variation.blocks expected at most 1, as blocks says, got 3'):
        config.but(variation={'blocks': [1, 3, 0]})
    assert config.but(variation={'blocks': [1, 3, 0]}, blocks=3).variation.blocks == [1, 3, 0]
    assert config.but(variation={'blocks': [1, 9]}, blocks=None).blocks is None
    with pytest.raises(ValueError, match='at most as many as shots'): config.but(form={'shots': 2, 'conventions': 3})
