"""The quantitative leads that our pages state, and those that were withdrawn: what attacks are made on.

To add a claim, add a `Claim` here: one plain sentence, the pages with a piece of the text that states it, and the
study, arm and rival whose committed cells it rests on. `standing` means that no attack fells it. `limited`: the page
says the limit (few seeds, compute, a label) in the same section, and the attacks in `concedes` say the same. `pilot`:
the same, of runs that no committed cell holds. `withdrawn`: the page says so in the same section.
"""
from dataclasses import dataclass
from typing import Any, NamedTuple

README, RESULTS, HOW = 'README.md', 'nbs/results.ipynb', 'nbs/howto.md'
_EXPERIMENTS, _TUTORIALS = 'nbs/experiments/', 'nbs/tutorials/'
ISLANDS, LEARNING, REAL, SELECTION, SOCIETY, WORLDS, MAP = (f'{_EXPERIMENTS}{name}.ipynb' for name in (
    'islands', 'learning', 'real', 'selection', 'society', 'worlds', 'worlds_map'))
FIRST, RULES, ENERGY, VARIATION, NICHES, DOES, LECTURE, HOST, RING = (f'{_TUTORIALS}{name}.ipynb' for name in (
    '01_first_generation', '03_how_organelles_learn', '04_energy_and_survival', '07_variation_and_selection',
    '08_niches_and_worlds', '09_does_it_work', '10_society', '13_real_host', '16_islands'))
STATUSES = ('standing', 'limited', 'pilot', 'withdrawn')


class Place(NamedTuple):
    "Where a claim is stated"
    page: str
    text: str           # a piece of what states it
    beside: str = ''    # in the same section: the withdrawal, or the limit


@dataclass(frozen=True)
class Claim:
    "One arm is ahead of another"
    text: str                           # in one plain sentence
    status: str
    places: tuple[Place, ...]
    study: str = ''                     # of `nbs/experiments/results`; empty: no committed cell holds it
    of: str = ''
    against: str = ''
    world: str = ''                     # empty: the first one of the study; host and budget alike
    host: str = ''
    budget: float = 0.
    measure: str = ''                   # a rank correlation in place of right answers
    least: float = 0.                   # points that were announced
    part: bool = False                  # two versions of one arm: what a part does in it, and no lead over a rival
    figures: tuple[str, ...] = ()       # other numbers of points by which pages state it
    concedes: tuple[int, ...] = ()      # attacks whose objection the page itself makes
    seeds: int = 0                      # where no committed cell tells
    lead: float = 0.                    # points; the same
    evidence: Any = None                # an invented study, in tests


STANDING = (
    Claim('Trained from rewards alone, the ecology is ahead of the base model in a constant world.', 'standing',
          (Place(RESULTS, '+22.3 [+18.9, +25.6] over the base model'),
           Place(DOES, '22 points ahead of the frozen host')),
          'selection', 'ecology', 'frozen'),
    Claim('Trained from rewards alone, one adapter is ahead of the base model in a constant world.', 'standing',
          (Place(README, 'take one adapter from 62% to 86% on the small base model'),),
          'selection', 'single', 'frozen'),
    Claim('The ecology is ahead of an evolution strategy.', 'standing',
          (Place(DOES, '**ahead of** random_search, es, frozen'),), 'selection', 'ecology', 'es'),
    Claim('Where six founders learn at unlike rates, selection by stakes is ahead of no selection.', 'standing',
          (Place(RESULTS, '+12.5 [+7.0, +18.4] ahead of six that answer and learn evenly'),
           Place(SELECTION, '12.5 points [7.0, 18.4] ahead of six that answer and learn evenly'),
           Place(DOES, '12.5 points [7.0, 18.4] ahead of letting all six answer')),
          'selection', 'spread', 'spread_even'),
    Claim('In the earlier economy the ecology is ahead of the base model.', 'standing',
          (Place(RESULTS, 'gained +18.4 [+15.2, +21.9] over the base model'),
           Place(LEARNING, '+18.4 points [+15.2, +21.9] above the frozen host')),
          'learning', 'ecology', 'frozen', figures=('11.7',)),
    Claim('In the earlier economy one adapter is ahead of the base model.', 'standing',
          (Place(LEARNING, 'one adapter +21.7 [+18.4, +25.2]'),
           Place(RESULTS, 'one adapter gained +14.5 [+11.2, +17.8]')),
          'learning', 'single', 'frozen', figures=('14.5',)),
    Claim('In the earlier economy the ecology is ahead of a population that varies without learning.', 'standing',
          (Place(RESULTS, 'difference to the ecology: +17.9 [+14.8, +21.2]'),), 'learning', 'ecology', 'random_search'),
    Claim('In the earlier economy rejection sampling is ahead of the ecology.', 'standing',
          (Place(LEARNING, 'expert iteration is four points ahead of the ecology'),), 'learning', 'rft', 'ecology'),
    Claim('A rule that looks forward only is ahead of the base model.', 'standing',
          (Place(RESULTS, 'gains 12.0 points of the 18.6'),), 'rules', 'hebbian', 'frozen'),
    Claim('Inside the ecology, the largest stake should answer and not a draw.', 'standing',
          (Place(RESULTS, 'the largest stake answers (+42.4 [+40.5, +44.0])'), Place(WORLDS, '42 points are lost')),
          'worlds_parts', 'ecology', 'drawn', part=True),
    Claim('Inside the ecology, stakes should age.', 'standing',
          (Place(RESULTS, 'stakes age (+38.1 [+29.9, +46.7])'),), 'worlds_parts', 'ecology', 'no_ageing', part=True),
    Claim('Inside the ecology, all families should share one account where they change together.', 'standing',
          (Place(RESULTS, 'where they change together (+26.7 [+24.3, +29.0])'),),
          'worlds_parts', 'ecology', 'family_books', part=True),
    *(Claim(f'Inside the ecology, stakes are ahead of {rival} as a plan of who answers (world {world}).', 'standing',
            (Place(RESULTS, 'more than 35 points ahead of an auction, a bandit and chance', 'as many graded answers'),
             Place(SOCIETY, 'more than forty points ahead of the three others', 'as many graded answers'),
             Place(LECTURE, 'more than 41 points ahead', 'as many graded answers')),
            'society_allocation', 'ecology', rival, world, part=True, figures=('35', '38', '40', '41'))
      for world in ('recurring', 'static') for rival in ('auction', 'bandit', 'chance')),
    Claim('Where nothing changes, a bandit is ahead of an auction as a plan of who answers.', 'standing',
          (Place(SOCIETY, '7 points behind it in the other'),
           Place(LECTURE, '−7.1 points [−12.4, −2.2] where nothing')),
          'society_allocation', 'bandit', 'auction', 'static', part=True),
)

LIMITED = (
    Claim('The ecology is ahead of the best of many random mutants.', 'limited',
          (Place(RESULTS, 'are 16.3 [+13.6, +18.9] behind it', 'They got 2,075 graded answers'),
           Place(DOES, '16 ahead of random search', 'one seventh of the graded answers')),
          'selection', 'ecology', 'random_search', concedes=(9,)),
    Claim('On SmolLM2 the ecology is ahead of the base model.', 'limited',
          (Place(RESULTS, 'The ecology gains +18.3 [+11.8, +25.1]', "Five seeds allow no Holm's p below 0.125"),
           Place(RESULTS, '+18.3 [+11.8, +25.1] from the base model', 'not significant, five seeds'),
           Place(REAL, '+18.3 points over the frozen host', 'none below .125'),
           Place(HOST, 'ahead of the frozen host by 18 points', 'corrected p = 0.125')),
          'real', 'ecology', 'frozen', figures=('18',), concedes=(10,)),
    Claim('On SmolLM2 one adapter is ahead of the base model.', 'limited',
          (Place(README, 'On SmolLM2 it goes from 36% to 57%', 'five seeds, not significant after correction'),),
          'real', 'single', 'frozen', concedes=(10,)),
    Claim('On SmolLM2 rejection sampling is ahead of the ecology.', 'limited',
          (Place(REAL, 'is ahead of the ecology by 8.3 [3.9, 13.1]', 'none below .125'),), 'real', 'rft', 'ecology',
          concedes=(9, 10)),
    Claim('On SmolLM2, in an earlier run, the ecology is ahead of the base model.', 'pilot',
          (Place(REAL, 'was 8.4 points ahead of the host [3.3, 13.9]', 'an ecology of before'),), seeds=1, lead=8.4,
          figures=('8.4',), concedes=(11,)),
    Claim('In a constant world one adapter is ahead of the ecology.', 'limited',
          (Place(README, '1.2 points [0.1, 2.4] ahead of the population', 'this is not significant'),
           Place(SELECTION, '1.2 points ahead" is not significant', 'after correction'),
           Place(VARIATION, '1.2 points [0.1, 2.4] ahead', 'not significant after correction')),
          'selection', 'single', 'ecology', concedes=(6, 9, 10, 12)),
    Claim('In a constant world one adapter is ahead of the ecology with three times the compute.', 'limited',
          (Place(RESULTS, 'it is −1.5 [−2.4, −0.7], p 0.004', 'three points'),),
          'selection_longer', 'single', 'ecology', concedes=(9, 12)),
    *(Claim(f'In a constant world {name} is ahead of the ecology.', 'limited',
            (Place(RESULTS, 'Rejection sampling is 2.6 points ahead of the ecology', 'three points'),
             Place(SELECTION, '`grpo` and gold answers are 2.4 to 3.4 ahead', 'three points')),
            'selection', arm, 'ecology', concedes=attacks)
      for name, arm, attacks in (('rejection sampling', 'rft', (9, 12)),
                                 ('policy gradient in all blocks', 'grpo', (9, 12)),
                                 ('an adapter on gold answers', 'sft', (4,)))),
    Claim('In the earlier economy one adapter is ahead of the ecology.', 'limited',
          (Place(LEARNING, 'by 3.4 points [1.2, 5.8]', 'p = .09'),), 'learning', 'single', 'ecology', concedes=(10,)),
    Claim('In the earlier economy gold answers are ahead of rewards.', 'limited',
          (Place(LEARNING, '(`sft` − `grpo`): +1.9 points [+0.5, +3.4]', 'Gold answers against reward'),),
          'learning', 'sft', 'grpo', concedes=(4, 12)),
    Claim('An exact gradient is ahead of the rule that looks forward only.', 'limited',
          (Place(RESULTS, 'It is −6.7 points from the exact gradient', 'for 82% of its compute'),),
          'rules', 'exact', 'hebbian', concedes=(8,)),
    Claim('Arms that are told the world are ahead of the ecology.', 'limited',
          (Place(WORLDS, '5.1 points [4.0, 6.2] with an adapter per world', 'before anything changed'),
           Place(WORLDS, '5.1 points [4.0, 6.2] with an adapter per world', 'The arms that are told the world')),
          'worlds', 'told', 'ecology', concedes=(2, 4, 7)),
    Claim('Islands without migrants are ahead of islands with migrants.', 'limited',
          (Place(RESULTS, '−7.4 [−10.9, −3.7] and −1.3', 'they cost compute'),
           Place(ISLANDS, 'Ring − alone is −7.4 points [−10.9, −3.7]', '25% more graded answers')),
          'islands', 'alone', 'ring', 'recurring', part=True, concedes=(9,)),
    Claim('Islands with migrants are ahead of islands without in the same generations.', 'limited',
          (Place(RESULTS, 'migrants bring +2.0 [+0.9, +3.1]', 'not announced'),
           Place(ISLANDS, '+2.0 points [+0.9, +3.1] in the same generations', 'same generations')),
          seeds=10, lead=2., figures=('2.0',), concedes=(12,)),
    Claim('Over whole runs the ecology is ahead of six adapters without births, by the same settings.', 'limited',
          (Place(RESULTS, '+1.2 [+0.7, +1.7] ahead', 'which was not announced'),),
          'worlds_parts', 'births_other', 'bank_other', part=True, concedes=(6, 10, 12)),
    Claim('The best program of a search over attention mechanisms has a lower loss than softmax.', 'limited',
          (Place(RESULTS, 'It finds +0.060 nats over softmax', 'stands, four seeds'),
           Place(RESULTS, 'both are better than softmax', 'Warning: four seeds')), seeds=4, lead=6., concedes=(11,)),
    Claim('A bank is ahead of the ecology on the map of worlds.', 'limited',
          (Place(MAP, 'ahead by 16 points at period one', 'two seeds are few all the same'),),
          'worlds_map', 'posterior', 'ecology', 'together_1', figures=('12',), concedes=(1, 2, 10, 11)),
    Claim('Twelve slots are ahead of four slots and an archive.', 'limited',
          (Place(RESULTS, 'are 4.0 points ahead of the archive', 'No arm had an example in its prompt'),
           Place(SOCIETY, '4.0 points [2.2, 5.8] ahead of the archive', 'The rival is missing')),
          'society_archive', 'seats', 'archive', 'drawn', concedes=(1, 2)),
    Claim('In changing worlds a population with memory is ahead of one adapter with memory.', 'pilot',
          (Place(README, 'is 7 points ahead of one adapter with memory over the whole run',
                 'two seeds, 24% more compute'),),
          seeds=2, lead=6.6, figures=('7',), concedes=(11,)),
    Claim('In changing worlds the base model with memory is ahead of the base model, without any training.', 'pilot',
          (Place(README, 'memory alone takes the untrained base model from 22% to 61%', 'three seeds'),),
          seeds=3, lead=39., concedes=(11,)),
    Claim('In one run the ecology is ahead of the base model.', 'pilot',
          (Place(FIRST, '+20.1 points [+15.4, +24.5]', 'seed'),), seeds=1, lead=20.1, concedes=(11,)),
    Claim('In five runs, answers by stakes are ahead of the best adapter of the population.', 'pilot',
          (Place(ENERGY, '+8.8 points [+1.6, +16.1] on average', 'over the five lives'),), seeds=5, lead=8.8,
          figures=('8.8',)),
)

_UNTIL = 'Withdrawn until'
WITHDRAWN = (
    Claim('In worlds that change, the ecology is 19.9 points ahead of the best single adapter.', 'withdrawn',
          (Place(RESULTS, 'The README led with +19.9', 'Withdrawn until every arm has a memory'),
           Place(RESULTS, 'Open: +19.9', 'withdrawn'),
           Place(WORLDS, '+19.9 points [+17.9, +21.7]', 'no claim about the best single adapter is left'),
           Place(WORLDS, '+11.5 points ahead of `reset`', 'no claim about the best single adapter is left'),
           Place(NICHES, '19.9 points [17.9, 21.7] ahead of it', 'no lead over the best single adapter')),
          'worlds', 'ecology', 'reset', least=12.),
    Claim('In worlds that change, the ecology is ahead of the least recently used rule.', 'withdrawn',
          (Place(WORLDS, '11.7 points [7.3, 16.1] ahead of `recent`', 'no conclusion is possible'),),
          'worlds', 'ecology', 'recent'),
    Claim('Where each family changes by itself, the ecology is ahead of one adapter.', 'withdrawn',
          (Place(RESULTS, '+19.7 [+16.5, +22.9] where each family', 'withdrawn for *apart* and *skewed*'),
           Place(WORLDS, '19.7 points [+16.5, +22.9] more than `reset`', 'Rival missing')),
          'worlds_kinds', 'ecology', 'reset', 'apart'),
    Claim('Where worlds are met unevenly, the ecology is ahead of one adapter.', 'withdrawn',
          (Place(RESULTS, '+26.7 [+23.6, +29.7] where eight worlds', 'withdrawn for *apart* and *skewed*'),
           Place(WORLDS, '26.7 points [+23.6, +29.7] ahead of `reset`', 'Rival missing')),
          'worlds_kinds', 'ecology', 'reset', 'skewed'),
    Claim('Where worlds are met unevenly, the ecology is ahead of the bank without births.', 'withdrawn',
          (Place(WORLDS, '3.1 [+1.1, +5.3] ahead of the bank', 'Rival missing'),),
          'worlds_kinds', 'ecology', 'posterior', 'skewed'),
    Claim('Where clients take turns, the ecology is ahead of one adapter.', 'withdrawn',
          (Place(WORLDS, 'Two more arms are 2.1 points behind', 'was wrong'),),
          'worlds_kinds', 'ecology', 'reset', 'sessions'),
    *(Claim(f'The ecology is ahead of {rival} among more rivals.', 'withdrawn',
            (Place(RESULTS, f'{text}', '`worlds_rivals`: **withdrawn.**'), *more), 'worlds_rivals', 'ecology', rival)
      for rival, text, more in (
          ('changepoint', '+15.6 [+11.8, +19.2] in second halves', (
              Place(WORLDS, '+15.6 points [+11.8, +19.2] ahead of it', 'ithdrawn'),)),
          ('reset', '+7.9 [+6.4, +9.1] over whole runs', ()))),
    Claim('With more worlds than slots, eviction by marginal contribution is ahead of the least recently used rule.',
          'withdrawn', (Place(WORLDS, '+1.3 points [−2.8, +5.6] ahead of LRU', 'The announced refutation came'),
                        Place(WORLDS, '+1.3 points [−2.8, +5.6] ahead of LRU', _UNTIL)),
          'worlds_seats', 'ecology', 'recent'),
    Claim('The ecology remembers a world that was away for long, and one adapter does not.', 'withdrawn',
          (Place(RESULTS, 'a world was away for thirteen changes', 'so this is **withdrawn** as a memory'),),
          'worlds_memory', 'ecology', 'one'),
    *(Claim(f'On the map, the ecology is ahead of one adapter that is reset (world {world}).', 'withdrawn',
            (Place(RESULTS, '+54.2 [+48.3, +59.9]', '**withdrawn. Warning: two seeds.**'),
             Place(MAP, 'is behind in all fifteen worlds', 'a rival whose detector latched')),
            'worlds_map', 'ecology', 'reset', world)
      for world in ('together_4', 'together_2', 'seats_16')),
    *(Claim(f'A ring of islands is ahead of one ecology ({arm}, world {world}).', 'withdrawn',
            (Place(RESULTS, '+20.3 [+16.3, +24.1] and +49.9 [+46.9, +52.8] over one ecology', '**Corrected.**'),
             Place(RESULTS, '+49.9 [+46.9, +52.8] is no fair lead', 'corrected'),
             Place(ISLANDS, '+20.3 points [+16.3, +24.1] in *recurring*', 'This is no lead of islands'),
             Place(RING, '20.3 and 49.9 points', 'that islands help is withdrawn')),
            'islands', 'ring', arm, world)
      for world in ('recurring', 'apart') for arm in ('house', 'large')),
    Claim('The archive is ahead of the ecology without one, four worlds and six slots.', 'withdrawn',
          (Place(RESULTS, 'The archive is +2.9 [+0.4, +5.7]', '**withdrawn**'),
           Place(SOCIETY, 'without one**: +2.9 points [+0.4, +5.7]', 'Withdrawn as a benefit'),
           Place(SOCIETY, 'without one +2.9 [+0.4, +5.7]', 'Withdrawn as a benefit'),
           Place(SOCIETY, '1.9 points ahead of the ecology in second halves', '**withdrawn until measured again'),
           Place(LECTURE, 'ecology again:** +2.9 points [+0.4, +5.7]', 'no claim that an archive helps')),
          'society_confirmation', 'archive', 'ecology', figures=('1.9',)),
    *(Claim(f'With more worlds than slots, the archive is ahead of {rival} (world {world}).', 'withdrawn',
            (Place(RESULTS, '+11.4 [+7.6, +15.0]', '**Eight worlds and four slots: withdrawn.**'),
             Place(SOCIETY, '+11.4 points [+7.6, +15.0]', _UNTIL),
             Place(LECTURE, '+11.4 points [+7.6, +15.0]', 'is withdrawn until every arm has that memory')),
            'society_archive', 'archive', rival, world)
      for world, rival in (('drawn', 'ecology'), ('skewed', 'ecology'), ('drawn', 'recent'))),
    Claim('On SmolLM2 the archive is ahead of the ecology without one.', 'withdrawn',
          (Place(RESULTS, 'The archive is +27.6 [+20.3, +35.2] ahead', 'two conventions that take turns: withdrawn'),
           Place(SOCIETY, 'already 20.6 points ahead', _UNTIL),
           Place(SOCIETY, '+27.6 points in the second half', 'withdrawn'),
           Place(REAL, '+27.6 points for an archive', 'withdrawn')),
          'society_real', 'archive', 'ecology', figures=('22',)),
    Claim('In the screen, the archive is ahead where worlds return and hazards where nothing changes.', 'withdrawn',
          (Place(RESULTS, 'archive in the recurring world and hazard in the static world', 'Warning: three seeds'),
           Place(SOCIETY, '+3.6 points [+1.0, +6.1]', 'The rival with memory in the prompt is missing'),
           Place(LECTURE, '+3.6 points [+1.0, +6.1]', 'no claim that an archive helps')),
          seeds=3, lead=3.6, figures=('3.6', '0.8')),
    Claim('The preset `stakes` is ahead of the preset `ecology`.', 'withdrawn',
          (Place(RESULTS, 'it is +1.9 [−0.1, +5.0] from the preset `ecology`', 'One seed carries that'),
           Place(DOES, '+1.9 points ahead of the preset `ecology`', 'One seed has +14.5')),
          'selection_default', 'quiet', 'ecology'),
    Claim('Births and deaths by merit are ahead of births and deaths at random.', 'withdrawn',
          (Place(RESULTS, 'the ecology has +2.8 [−0.6, +8.8]', 'all of it from one seed'),
           Place(VARIATION, '+2.8 points [-0.6, +8.8]', 'cannot tell from nothing')), 'selection', 'ecology', 'lot'),
    Claim('Merit makes the accounts rank the living, with a correlation of .93.', 'withdrawn',
          (Place(RESULTS, 'rank the living with a correlation of .93', 'so merit does not make the ranking'),
           Place(DOES, '"its books rank the living, .93"', 'shared fitness')),
          'selection', 'spread', 'spread_lot', measure='shared'),
)
CLAIMS = (*STANDING, *LIMITED, *WITHDRAWN)

# What looks like a lead and is none: page, a piece of its text, and why.
NO_LEADS = (
    (WORLDS, 'not 12 points ahead of the best single adapter', 'what would refute it'),
    (WORLDS, '0.2 ahead of specialists [−1.0, +1.4]', 'level'),
    (WORLDS, '0.3 ahead [−0.6, +1.2]', 'level'),
    (f'{_TUTORIALS}06_merging_and_gates.ipynb', '+3.0 points [+0.5, +6.0]', 'the family in which a merge was worst'),
    (VARIATION, '+0.20 [+0.17, +0.23]', "terms of Price's equation"),
    (VARIATION, '+0.09 [+0.06, +0.12]', "terms of Price's equation"),
    (VARIATION, 'ahead of chance by 2 points', 'supposed in an exercise'),
)
