"""What no lesson shows of `sequential`: integrals, brute force, an independent library, and promises kept."""
import json
from itertools import product

import numpy as np
import pytest
from online_fdr import e_values
from online_fdr.core.abstract.abstract_gamma_seq import AbstractGammaSequence
from scipy import integrate, stats
from scipy.special import logsumexp, zeta

from evolora.utils.statistics import power_pairs
from evolora.utils.randomness import stream
from evolora.assimilation.sequential import (ELond, PairedTest, Window, betting, confidence_sequence, e_value,
                                             log_e_value, outlook, pairs_needed, power_at, window)

rng = lambda seed=0: stream(seed, purpose='tests')


# --- the e-value

@pytest.mark.parametrize('wins, losses', [(0, 0), (1, 0), (0, 1), (3, 2), (2, 3), (25, 25), (40, 11), (9, 40), (0, 90)])
def test_an_e_value_is_its_integral(wins, losses):
    bet = lambda share: 2 * (2 * share)**wins * (2 - 2 * share)**losses
    assert e_value(wins, losses) == pytest.approx(integrate.quad(bet, .5, 1, epsabs=0, epsrel=1e-12)[0], rel=1e-9)


def test_the_log_is_exact_for_thousands():
    "Against the finite sum of positive terms, in log space, on both sides of the diagonal"
    def reference(wins, losses):
        k = np.arange(wins)
        return logsumexp(np.r_[0, np.cumsum(np.log((wins - k) / (losses + 2 + k)))]) - np.log(losses + 1)
    for wins, losses in ((0, 2000), (10, 5000), (999, 1000), (1000, 1000), (1001, 1000), (4000, 6000), (6000, 4000)):
        assert log_e_value(wins, losses) == pytest.approx(reference(wins, losses), rel=1e-9), (wins, losses)
    assert log_e_value(2000, 0) == pytest.approx(2001 * np.log(2) - np.log(2001))
    assert e_value(2000, 0) == np.inf and e_value(0, 2000) == pytest.approx(1 / 2001)


def test_wins_raise_it_and_losses_lower_it():
    logs = log_e_value(np.arange(200)[:, None], np.arange(200))
    assert logs.shape == (200, 200) and (np.diff(logs, axis=0) > 0).all() and (np.diff(logs, axis=1) < 0).all()
    assert type(log_e_value(3, 4)) is type(e_value(3, 4)) is float


@pytest.mark.parametrize('share', [0, .2, .45, .5])
def test_the_game_is_fair_or_losing_from_every_position(share):
    "The mean after one more pair is at most what it was: a martingale at 1/2, a supermartingale below"
    b, c = np.mgrid[:60, :60]
    after = share * e_value(b + 1, c) + (1 - share) * e_value(b, c + 1)
    ratio = after / e_value(b, c)
    assert np.allclose(ratio, 1, rtol=1e-9, atol=0) if share == .5 else (ratio < 1).all()


def test_it_is_the_mixture_of_the_library():
    "A fine grid of alternatives in the library's mixture of likelihood ratios, pair by pair"
    shares = .5 + (np.arange(400) + .5) / 800
    theirs = e_values.MixtureLikelihoodRatioEProcess(
        [lambda won, share=share: np.log(2 * share if won else 2 - 2 * share) for share in shares])
    ours = PairedTest()
    for won in rng().random(80) < .6:
        fed(ours, [won], [not won])
        assert theirs.update(won) == pytest.approx(ours.e, rel=1e-3)


@pytest.mark.parametrize('wins, losses', [(-1, 0), (0, -1), (.5, 1), (float('nan'), 1), (1, np.inf), ([1, 2, -3], 0)])
def test_counts_are_counts(wins, losses):
    with pytest.raises(ValueError, match='expected counts of wins and losses') as e: e_value(wins, losses)
    assert '\n' not in str(e.value)


# --- power, by walking

def brute_force(share, discordant, pairs, alpha):
    "Over all sequences of wins, losses and ties"
    found = 0
    for path in product((1, -1, 0), repeat=pairs):
        path = np.array(path)
        if (e_value((path > 0).cumsum(), (path < 0).cumsum()) >= 1 / alpha).any():
            won, lost = (path > 0).sum(), (path < 0).sum()
            ties = (1 - discordant)**(pairs - won - lost)
            found += (discordant * share)**won * (discordant * (1 - share))**lost * ties
    return found


@pytest.mark.parametrize('uplift, discordant, alpha',
                         [(0, .5, .3), (.3, .5, .3), (.6, .8, .15), (-.2, .9, .4), (1, 1, .1)])
def test_power_is_a_sum_over_all_sequences(uplift, discordant, alpha):
    share = (1 + uplift / discordant) / 2
    assert power_at(uplift, discordant, 7, alpha) == pytest.approx(brute_force(share, discordant, 7, alpha), abs=1e-10)


def test_power_is_what_streams_show():
    x = rng().random((4000, 400))
    found = (log_e_value((x < .15).cumsum(1), (x > .95).cumsum(1)) >= np.log(100)).any(1).mean()
    assert found == pytest.approx(power_at(.1, .2, 400, .01), abs=.03)


@pytest.mark.parametrize('discordant', [.05, .2, 1.])
@pytest.mark.parametrize('alpha', [.2, .05, .001])
def test_false_accepts_stay_below_alpha_and_the_worse_are_accepted_less(discordant, alpha):
    rates = [power_at(uplift, discordant, 2000, alpha) for uplift in (-.04, -.01, 0)]
    assert rates == sorted(rates) and alpha / 4 < rates[-1] < alpha
    assert rates[0] < .8 * rates[-1]


def test_pairs_needed_is_the_first_number_that_is_enough():
    for uplift, discordant, alpha, power in ((.1, .2, .05, .8), (.2, .2, .01, .9), (.05, .3, .3, .5), (1, 1, .05, .8)):
        pairs = pairs_needed(uplift, discordant, alpha, power)
        assert power_at(uplift, discordant, pairs, alpha) >= power > power_at(uplift, discordant, pairs - 1, alpha)


def test_the_fiftieth_gate_can_be_passed():
    level = .05 * ELond().gamma(50) * 6
    assert power_at(.1, .2, 1000, level) > .99 and power_at(.1, .4, 1000, level) >= .8
    assert power_pairs(.1, .2, level) < pairs_needed(.1, .2, level) < 500


def test_a_window_keeps_its_bounds():
    assert window(.1, .2) == (pairs_needed(.1, .2), power_at(.1, .2, pairs_needed(.1, .2)), True)
    assert window(.1, .2, most=pairs_needed(.1, .2)).enough and not window(.1, .2, most=pairs_needed(.1, .2) - 1).enough
    assert window(.9, .9) == Window(32, power_at(.9, .9, 32), True)
    small = window(.01, .2, .0005, most=256)
    assert small.pairs == 256 and not small.enough and small.power < .05
    assert not window(0, .2).enough and not window(-.1, .2).enough


@pytest.mark.parametrize('call, match', [
    (lambda: power_at(.3, .2, 10), 'expected |uplift| <= discordant'), (lambda: power_at(0, 0, 10), 'discordant'),
    (lambda: power_at(float('nan'), .2, 10), 'discordant'), (lambda: power_at(.1, .2, -1), 'pairs >= 0'),
    (lambda: power_at(.1, .2, 10, 5), 'alpha expected'), (lambda: pairs_needed(0, .2), '0 < uplift'),
    (lambda: pairs_needed(.1, .2, power=80), 'power expected'), (lambda: pairs_needed(.001, .2), 'ask for a larger'),
    (lambda: window(.1, .2, least=0), 'least <= most'), (lambda: window(.1, .2, power=1), 'power expected')])
def test_plans_that_cannot_be(call, match):
    with pytest.raises(ValueError) as e: call()
    assert match in str(e.value) and '\n' not in str(e.value)


# --- the outlook

def test_the_outlook_is_what_both_priors_predict():
    "Draw both shares from their posteriors, and play the rest of the window"
    for wins, losses, pairs in ((6, 3, 40), (0, 0, 0), (10, 9, 60)):
        draw, n, left = rng(pairs), 20_000, 120 - pairs
        discordant = draw.beta(wins + losses + 1, pairs - wins - losses + 1, (n, 1))
        share = draw.beta(wins + 1, losses + 1, (n, 1))
        differs, won = draw.random((n, left)) < discordant, draw.random((n, left)) < share
        b, c = wins + (differs & won).cumsum(1), losses + (differs & ~won).cumsum(1)
        table = log_e_value(np.arange(130)[:, None], np.arange(130))
        played = (table[b, c] >= np.log(20)).any(1).mean()
        assert outlook(wins, losses, pairs, 120) == pytest.approx(played, abs=.015)


def test_the_outlook_has_its_order():
    ahead = [outlook(b, 20 - b, 100, 300) for b in range(21)]
    assert ahead == sorted(ahead) and ahead[0] < .001 and ahead[-1] == 1
    longer = [outlook(12, 8, 100, most) for most in (100, 101, 150, 300, 1000)]
    assert longer[0] == 0 and longer == sorted(longer)
    assert outlook(9, 0, 9, 9) == outlook(9, 0, 9, 5) == 1


@pytest.mark.parametrize('state', [(-1, 0, 5), (0, -1, 5), (3, 3, 5)])
def test_the_outlook_refuses_impossible_counts(state):
    with pytest.raises(ValueError, match='count the pairs again'): outlook(*state, 100)


# --- a stream of pairs

def fed(test, candidate, control):
    "The test after some more pairs, to questions that are called by their numbers"
    return test.observe(candidate, control, [str(test.pairs + i) for i in range(len(candidate))])


def answers(n, uplift=.1, discordant=.2, seed=0):
    x = rng(seed).random(n)
    return x < (discordant + uplift) / 2, x > 1 - (discordant - uplift) / 2


def test_batches_do_not_matter():
    candidate, control = answers(500)
    whole = fed(PairedTest(.01), candidate, control)
    for size in (1, 13, 499):
        parts = PairedTest(.01)
        for i in range(0, 500, size): fed(parts, candidate[i:i + size], control[i:i + size])
        assert parts == whole
    path = log_e_value((candidate > control).cumsum(), (candidate < control).cumsum())
    assert whole.crossed == 1 + (path >= np.log(100)).argmax() and whole.log_peak == path.max()
    assert (whole.wins, whole.losses, whole.pairs) == (candidate.sum(), control.sum(), 500)
    assert whole.uplift == pytest.approx(candidate.mean() - control.mean())
    assert whole.discordant == pytest.approx((candidate ^ control).mean())
    assert whole.p == pytest.approx(1 / whole.peak) and whole.e <= whole.peak


def test_a_test_resumes_from_plain_json():
    candidate, control = answers(500)
    whole = fed(PairedTest(.01, most=600, futility=.1), candidate, control)
    half = fed(PairedTest(.01, most=600, futility=.1), candidate[:250], control[:250])
    resumed = PairedTest(**json.loads(json.dumps(half.state(), allow_nan=False)))
    assert resumed == half and fed(resumed, candidate[250:], control[250:]) == whole
    assert json.dumps(fed(PairedTest(), [1] * 2000, [0] * 2000).state(), allow_nan=False)


def test_nothing_is_known_before_the_first_pair():
    test = PairedTest()
    assert (test.e, test.peak, test.p, test.pairs, test.crossed, test.verdict()) == (1, 1, 1, 0, None, 'continue')
    assert np.isnan(test.uplift) and np.isnan(test.discordant) and fed(test, [], []) == PairedTest()
    assert 'continue: 0 wins and 0 losses in 0 of 1024 pairs' in repr(test)


def test_the_four_verdicts():
    won, lost = ([1], [0]), ([0], [1])
    test = PairedTest(most=64)
    for _ in range(31): fed(test, *lost)
    assert test.outlook < .05 and test.verdict() == 'continue'         # too early to give up
    assert fed(test, *lost).verdict() == 'abandon'
    assert PairedTest(**{**test.state(), 'futility': 0}).verdict() == 'continue'
    assert fed(test, [1] * 32, [1] * 32).verdict() == 'exhausted'
    test = PairedTest(most=64)
    while test.crossed is None: fed(test, *won)
    assert test.verdict() == 'accept' and test.pairs == test.crossed and test.e >= 20
    for _ in range(100): fed(test, *lost)
    assert test.verdict() == 'accept' and test.outlook == 1 and test.e < 1 and test.crossed < 10


def test_it_is_accepted_as_often_as_the_walk_predicts():
    play = lambda seed: fed(PairedTest(.05, most=200, futility=0), *answers(200, 0, .4, seed)).verdict()
    kinds = [play(seed) for seed in range(1500)]
    assert set(kinds) == {'accept', 'exhausted'}
    assert kinds.count('accept') / 1500 == pytest.approx(power_at(0, .4, 200), abs=.015)


def test_giving_up_takes_nulls_away_and_adds_none():
    def play(seed, **options):
        test, (candidate, control) = PairedTest(.2, most=256, **options), answers(256, 0, .4, seed)
        for i in range(0, 256, 32):
            if fed(test, candidate[i:i + 32], control[i:i + 32]).verdict() != 'continue': break
        return test.verdict(), test.pairs
    free, early = ([play(seed, futility=f) for seed in range(150)] for f in (0, .1))
    assert all(one == 'accept' for (one, _), (other, _) in zip(free, early) if other == 'accept')
    assert sum(n for _, n in early) < .7 * sum(n for _, n in free) and 'abandon' in {kind for kind, _ in early}


@pytest.mark.parametrize('candidate, control, match', [
    ([1], [1, 0], 'expected pairs, got 1 and 2'), ([.5], [1], 'candidate expected .* got 0.5'),
    ([1], [float('nan')], 'control expected .* got nan'), ([[1]], [[0]], r'got shape \(1, 1\)'), (['1'], [0], 'got 1'),
    ([2] * 500, [0] * 500, 'got 2')])
def test_answers_are_right_or_wrong(candidate, control, match):
    test = PairedTest()
    with pytest.raises(ValueError, match=match) as e: test.observe(candidate, control, ['a', 'b'][:len(candidate)])
    assert '\n' not in str(e.value) and test == PairedTest()


@pytest.mark.parametrize('questions, match', [
    (['a', 'a'], "each once in a test, got 'a'"), (['new', 'old'], "got 'old'"), (['new', 7], 'got 7'),
    (['new'], 'got 1 for 2'), (['new', None], 'got None'), ([], 'got 0 for 2')])
def test_no_question_is_evidence_twice(questions, match):
    "Neither in one batch nor in a later one, and nothing is added; also after a resume"
    test = PairedTest().observe([1, 0], [0, 0], ['old', 'older'])
    for one in (test, PairedTest(**json.loads(json.dumps(test.state())))):
        with pytest.raises(ValueError, match=match) as e: one.observe([1, 1], [0, 0], questions)
        assert '\n' not in str(e.value) and one == test and (one.pairs, one.asked) == (2, ['old', 'older'])
    assert test.observe([1, 1], [0, 0], ['new', 'newer']).pairs == 4
    with pytest.raises(ValueError, match='each once'): PairedTest(asked=['a', 'a'])
    with pytest.raises(TypeError, match='questions'): test.observe([1], [0])    # a caller cannot leave them out


def test_what_was_asked_before_a_test_is_no_evidence_in_it():
    test = PairedTest(asked=['earlier'])
    with pytest.raises(ValueError, match="got 'earlier'"): test.observe([1], [0], ['earlier'])
    assert test.observe([1], [0], ['new']).pairs == 1 and test.asked == ['earlier', 'new']


def test_equal_blocks_would_be_accepted_far_too_often():
    "What the guard is for: coins of which each is counted eight times"
    coin, accepted = rng(1), 0
    for _ in range(200):
        won = coin.random(32) < .5
        accepted += fed(PairedTest(.05, most=256, futility=0), won.repeat(8), ~won.repeat(8)).verdict() == 'accept'
    assert accepted > .19 * 200
    with pytest.raises(ValueError, match='each once'):
        PairedTest(.05).observe(won.repeat(8), ~won.repeat(8), np.arange(32).astype(str).repeat(8).tolist())


@pytest.mark.parametrize('options', [{'alpha': 1}, {'most': 31}, {'least': 0}, {'futility': 1}, {'futility': -.1}])
def test_a_test_has_sensible_bounds(options):
    with pytest.raises(ValueError, match='expected'): PairedTest(**options)


# --- bets on numbers

def test_a_bet_is_its_definition_and_the_librarys():
    "Stakes from the past only, and the same capital in the library's betting process"
    d, margin = rng().uniform(-1, 1, 60), .1
    theirs, past = e_values.BettingEProcess(lambda score: stake), []
    guesses = []
    for x, log_e in zip(d, betting(d, margin)):
        mean = sum(past) / (len(past) + 1)
        variance = (1 + sum(guesses)) / (len(past) + 1)
        stake = min(max((mean - margin) / (variance + (mean - margin)**2), 0), .75 / (1 + margin))
        assert theirs.update(x - margin) == pytest.approx(np.exp(log_e), rel=1e-9)
        past.append(x)
        guesses.append((x - sum(past) / (len(past) + 1))**2)


def test_a_bet_does_not_know_the_future():
    d = rng().uniform(-1, 1, (3, 50))
    other = d.copy()
    other[:, 30:] = 1
    assert (betting(d)[:, :30] == betting(other)[:, :30]).all()
    assert (betting(d)[1] == betting(d[1])).all()


def test_no_stream_ruins_the_bettor():
    for margin in (-.99, -.5, 0, .5, .99):
        logs = betting(np.r_[np.ones(200), -np.ones(200)], margin)
        assert np.isfinite(logs).all()


@pytest.mark.parametrize('margin', [-.5, 0, .3])
def test_no_bet_cries_wolf(margin):
    "Two-point distributions, the hardest for a given mean: false alarms at any of 400 looks"
    for high in (.35, .6, 1.):
        for low in (-1, -.6):
            share = (margin - low) / (high - low)
            d = np.where(rng().random((1500, 400)) < share, high, low)
            assert (betting(d, margin) >= np.log(20)).any(1).mean() <= .05 + .012


@pytest.mark.parametrize('differences, margin',
                         [([2], 0), ([float('nan')], 0), (.5, 0), ([.5], 1), ([.5], -1), ([.5], float('nan'))])
def test_bets_have_bounds(differences, margin):
    with pytest.raises(ValueError, match='between -1 and 1') as e: betting(differences, margin)
    assert '\n' not in str(e.value)


# --- confidence sequences

def test_the_bounds_are_those_of_the_definition():
    "Reject every mean on the grid by the bet itself; the bound is the last of an unbroken row"
    d, grid = rng().choice([-1, 0, 1], 150, p=[.1, .5, .4]), np.arange(-.96, 1, .04)
    low, high = confidence_sequence(d, .1, step=.04)
    gone = np.array([np.maximum.accumulate(betting(d, m)) >= np.log(20) for m in grid])
    for t in range(150):
        unbroken = np.argmin(np.r_[gone[:, t], False])
        assert low[t] == pytest.approx(grid[unbroken - 1] if unbroken else -1)
    other = confidence_sequence(-d, .1, step=.04)
    assert (high == -other[0]).all() and (low == -other[1]).all()
    assert (np.diff(low) >= 0).all() and (np.diff(high) <= 0).all() and low[0] == -1 and high[0] == 1


def test_a_coarse_grid_is_only_wider():
    d = rng().choice([-1, 0, 1], 400, p=[.1, .5, .4])
    fine, coarse = confidence_sequence(d, step=.005), confidence_sequence(d, step=.05)
    assert (coarse[0] <= fine[0] + 1e-9).all() and (coarse[1] >= fine[1] - 1e-9).all()
    assert (fine[0] - coarse[0]).max() <= .05 + 1e-9
    assert confidence_sequence(d, step=1)[0][-1] == 0


def test_it_holds_at_all_times():
    missed = 0
    for seed in range(300):
        low, high = confidence_sequence(rng(seed).choice([-1, 0, 1], 200, p=[.3, .3, .4]), .1, step=.02)
        missed += not ((low <= .1) & (.1 <= high)).all()
    assert missed <= stats.binom.isf(.01, 300, .1)


@pytest.mark.parametrize('options', [{'alpha': 95}, {'step': 0}, {'step': 2}])
def test_a_confidence_sequence_has_sensible_knobs(options):
    with pytest.raises(ValueError, match='expected a number'): confidence_sequence([.1, .2], **options)


# --- many gates

class Gamma(AbstractGammaSequence):
    "Our shares in the library's terms"
    def calc_gamma(self, j, **_): return j**-1.2 / zeta(1.2)


def test_one_after_the_other_gates_decide_as_the_library():
    ours, theirs = ELond(.1), e_values.ELond(.1, Gamma())
    for e in np.exp(rng().exponential(4, 300)):
        number, level = ours.open()
        assert ours.close(number, e) == theirs.test_one(e) and level == pytest.approx(theirs.current_level)
    assert ours.discoveries == theirs.num_reject > 20


def test_the_shares_sum_to_one():
    gates, n = ELond(exponent=1.5), 100_000
    head = sum(gates.gamma(t) for t in range(1, n + 1))
    rest = zeta(1.5, n + 1) / zeta(1.5)
    assert head < 1 and head + rest == pytest.approx(1)


def test_a_level_is_fixed_when_its_gate_opens():
    gates = ELond()
    levels = [gates.open()[1] for _ in range(4)]
    assert [gates.close(t, np.inf) for t in (3, 1)] == [True, True] and gates.levels == levels
    assert gates.level == pytest.approx(3 * .05 * gates.gamma(5)) and gates.open() == (5, gates.levels[4])
    assert not gates.close(2, 1 / levels[1] * .999) and gates.close(4, 1 / levels[3])
    assert gates.table().status.tolist() == ['discovery', 'closed', 'discovery', 'discovery', 'open']
    assert '3 discoveries in 5 gates, 1 open' in repr(gates)


def test_the_book_resumes_from_plain_json():
    gates = ELond(.1, exponent=1.5)
    for _ in range(5): gates.open()
    gates.close(2, 1e9)
    resumed = ELond(**json.loads(json.dumps(gates.state(), allow_nan=False)))
    assert resumed == gates and resumed.open() == gates.open() and resumed.close(1, 5) == gates.close(1, 5)
    state = gates.state()
    gates.open()
    assert len(state['levels']) == 6                                    # a copy, not a view
    assert len(ELond().table()) == 0


@pytest.mark.parametrize('gate, e', [(0, 1), (3, 1), (1, -1), (1, float('nan')), (2, 5)])
def test_only_open_gates_are_closed(gate, e):
    gates = ELond()
    for _ in range(2): gates.open()
    gates.close(2, 5)
    with pytest.raises(ValueError, match='expected an open gate'): gates.close(gate, e)


@pytest.mark.parametrize('options', [{'alpha': 0}, {'exponent': 1}, {'exponent': float('nan')}])
def test_a_book_that_cannot_balance(options):
    with pytest.raises(ValueError, match='expected a number'): ELond(**options)


def test_the_worst_dependence_keeps_the_promise():
    """Null e-values as large and as aligned as the law allows: all gates win together.

    With u uniform, an E of 1/level where u is at most the level, else 0, is an e-value, even when all share one u.
    Of 20 gates that are open together, those are discoveries whose level is at least u.
    """
    alpha, false = .5, []
    for u in rng().random(4000):
        gates = ELond(alpha)
        opened = [gates.open() for _ in range(20)]
        for number, level in opened: gates.close(number, 1 / level if u <= level else 0)
        false.append(gates.discoveries > 0)                             # all are nulls: the share is 0 or 1
    assert np.mean(false) <= alpha and np.mean(false) == pytest.approx(alpha / zeta(1.2), abs=.02)


@pytest.mark.parametrize('batch', [1, 10])
def test_false_discoveries_are_few_among_many(batch):
    "Sharp two-point e-values, 40 % nulls: the mean share of false ones, at every size of overlap"
    draw, shares = rng(batch), []
    for _ in range(400):
        gates, null, false = ELond(.2), draw.random(60) < .4, 0
        for first in range(0, 60, batch):
            for number, level in [gates.open() for _ in range(batch)]:
                e = (draw.random() < level) / level if null[number - 1] else np.exp(draw.normal(6, 2))
                false += gates.close(number, e) and null[number - 1]
        shares.append(false / max(1, gates.discoveries))
    assert 0 < np.mean(shares) < .2
