"""Whatever a notebook shows of an object as markdown: no text from outside is taken for more than text."""
import re
from importlib import import_module
from types import SimpleNamespace

import pandas as pd
import pytest
from rendered import strange

from evolora._modidx import d as INDEX
from evolora.host.mechanisms.frameworks import FRAMEWORKS

EVIL = ('<img src=x onerror=alert(1)> | ```\n`a` ![](http://x) **z**\n\n# head \x1b[2J [x](javascript:y) '
        '\\](javascript:z) https://evil.example')


def of(name):
    module, _, kind = name.rpartition('.')
    return getattr(import_module(module), kind)


class Found(SimpleNamespace):
    "Whatever a display looks at"
    def __len__(self): return 1
    def __iter__(self): return iter(self.members)
    def __repr__(self): return 'found'


def program():
    return of('evolora.host.mechanisms.program_source.Program')(FRAMEWORKS['matrix_mixers'].program(
        '# ```\n# <img src=x onerror=alert(1)>\ndef matrix(self, q, k, x): return causal_softmax(q @ k.mT)'))


def row(index=EVIL, **values): return pd.DataFrame(values, index=[index])


NUMBERS = dict.fromkeys('''
    parsed pass@1 greedy pass@8 open new share candidate control lowest uplift se n accuracy low high chance corrected
    belief updates episodes balance rank born success_ema learning_progress value delta_norm'''.split(), 1.)
MODEL = Found(model_type=EVIL, num_hidden_layers=1, hidden_size=1)
HOST = Found(id=EVIL, precision=EVIL, config=Found(model_type=EVIL, get_text_config=lambda: MODEL), parameters=1,
             tokenizer='', meter=Found(answer=lambda *_: 1))
MEMBER = Found(id='o1', born=0, operator=EVIL, parents=(), rank=1, traits=Found(step=1.))
# By the class whose display is looked at: something whose every text is evil.
SHOWN = {
    'analysis.tables.RunData': lambda: Found(name=EVIL, about={EVIL: EVIL}, **dict.fromkeys(
        of('evolora.ecology.run_folder.TABLES'), ())),
    'analysis.weights.Beside': lambda: Found(prompt=EVIL, how=EVIL, organelle=EVIL, same=True, gold=EVIL,
                                           answers=row(text=EVIL)),
    'attention.scoring.validation.Verdict': lambda: Found(status='invalid', why=EVIL, checks=[
        Found(name=EVIL, holds=False, number=None, sentence=EVIL)]),
    'ecology.cost_forecast.Blueprint': lambda: HOST,
    'ecology.ecology.Ecology': lambda: Found(host=HOST, generation=0, seed=0, population=[0], demography=Found(
        table=lambda: row('o1', **NUMBERS, noop=False, operator=EVIL))),
    'ecology.record.Generation': lambda: Found(row={'cells': {EVIL: NUMBERS}}),
    'economy.market.Market': lambda: Found(holders=[EVIL], families=[EVIL],
                                           table=lambda: pd.DataFrame({EVIL: [1.]}, index=[EVIL])),
    'evaluation.evaluation.Evaluation': lambda: Found(
        name=EVIL, worst_family=EVIL, families={EVIL: 0.}, interval=str, parse_rate=0., macro=0., gflops_per_correct=0.,
        by_family=lambda: row(**NUMBERS)),
    'evaluation.free_questions.Reply': lambda: Found(
        guess=(EVIL, EVIL, 1.), text=EVIL, why=EVIL, prompt=EVIL, how=EVIL, flops=1,
        answers=row(organelle=EVIL, why=EVIL, text=EVIL, score=1.)),
    'evaluation.host_calibration.Calibration': lambda: Found(host=EVIL, form=EVIL, chosen=[EVIL], table=row(**NUMBERS)),
    'evaluation.routing.Router': lambda: Found(by=EVIL, best=EVIL, table={EVIL: EVIL}, fitted=(), answers=1, gflops=1.),
    'host.mechanisms.program_source.Program': program,
    'host.model.Host': lambda: HOST,
    'organelles.population.Population': lambda: Found(
        host=HOST, capacity=1, births=1, shapes='', kinds=(), members=[MEMBER], parameters=lambda _: 1,
        norms=lambda: row('o1', **NUMBERS)),
    'society.archive.Archive': lambda: Found(config=Found(measures=['niche', 'rank']), sleepers={'o1': Found(
        id=EVIL, updates=1, quality=1., used=1, cell=(0, 0))}),
    'society.colony.Colonies': lambda: Found(count=1, colonies=[Found(
        id='c1', family=EVIL, members=[EVIL], promoted=False, differences=[])]),
    'tasks.curriculum.Curriculum': lambda: Found(cells=[], lp_mix=0., table=lambda: row(**NUMBERS, cell=EVIL)),
}
# Numbers and words of our own, or shown with evil texts in the tests of its room.
ELSEWHERE = {'analysis.weights.Inspection', 'attention.report.search_report.Account', 'attention.scoring.scaling.Fit',
             'attention.scoring.scaling.Gain', 'ecology.run_folder.Run', 'economy.market.Audit',
             'islands.islands.Audit'}


def test_every_display_is_looked_at():
    ours = {name.removeprefix('evolora.').removesuffix('._repr_markdown_')
            for names in INDEX['syms'].values() for name in names if name.endswith('._repr_markdown_')}
    assert ours == {*SHOWN, *ELSEWHERE}


@pytest.mark.parametrize('name', SHOWN)
def test_no_display_takes_a_text_for_markdown(name):
    shown = of(f'evolora.{name}')._repr_markdown_(SHOWN[name]())
    outside = re.sub(r'^(`{3,})python\n.*?^\1$', '', shown, flags=re.DOTALL | re.MULTILINE)
    assert '<img' in shown if name.endswith('Program') else 'img' in shown         # else it tests nothing
    assert not any(mark in outside for mark in ('<img', '![](', ' **z**', '\n# ', '```', '\x1b', '](javascript:'))
    assert strange(shown) == [], 'neither a link nor HTML, whatever engine renders it'
