"""Memory is that of a process of its own, and the forecast stands beside it."""
import os

import pytest

from evolora.experiments import memory_use as mu
from evolora.experiments.memory_use import apart, memory_tables, memory_targets


def test_a_process_apart_is_another_one(): assert apart(os.getpid) != os.getpid()


def test_a_life_has_a_peak_and_a_forecast():
    found = apart(mu._lived, 'embedded')
    assert found['host'] == 'embedded' and found['dtype'] == 'float32' and found['generations'] == 12
    assert abs(found['forecast'] / found['peak'] - 1) < .35 and memory_targets(dict(
        generations=[1, 2], ratio=1., beside=[found]))[1]['name'] == 'forecast off by, embedded'


def test_a_peak_is_not_that_of_who_began_the_process():
    mine = bytearray(300 << 20)
    assert mu.peak_memory() > 300 > apart(len, mine[:10]) and apart(mu.peak_memory) < mu.peak_memory() - 200


@pytest.mark.parametrize('off, met', [(.85, True), (1.15, True), (.7, False), (1.3, False)])
def test_a_forecast_may_be_off_by_a_fifth_to_either_side(off, met):
    told = dict(generations=[50, 1000], resident=[1., 1.], ratio=1.2, forward=[],
                beside=[dict(host='x', dtype='float32', generations=2, peak=100., forecast=100 * off)])
    assert [t['met'] for t in memory_targets(told)] == [False, met]
    assert len(memory_tables(told)['Memory']) == 4


def test_an_older_measurement_has_no_lives():
    assert len(memory_targets(dict(generations=[50, 1000], ratio=1.))) == 1
