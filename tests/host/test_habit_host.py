"""The host with many habits: all of them are there, none is preferred, and one adapter cannot be two."""
import numpy as np
import pytest
from transformers import logging as transformers_logging

from evolora.host.habit_host import HABIT_DEPTHS, HabitConfig, habit_table
from evolora.host.model import load_host
from evolora.host.names import host_id
from evolora.host.pretraining import pretrain
from evolora.tasks.families import conventions, under
from evolora.tasks.splits import stream_of
from evolora.utils.randomness import stream


@pytest.fixture(scope='module')
def host(): return load_host('habits', threads=1)


def test_it_is_shipped_and_small(host):
    assert host.id == host_id('habits') == 'habits' and host.parameters < 1_000_000
    assert len(HABIT_DEPTHS) >= 6 and all(len(conventions(f)) == 4 for f in HABIT_DEPTHS)


def test_each_habit_is_sampled_and_none_is_preferred(host):
    table = habit_table(host, n=48, k=8)
    shares = table[[f'convention {i}' for i in range(4)]]
    assert ((.1 <= shares) & (shares <= .37)).all(axis=None), table
    assert (table['told apart'] >= .9).all(), table


def test_consistent_clients_want_the_same_number_of_habit_everywhere(monkeypatch):
    told = []
    def told_under(task, habit):
        told[-1].add(conventions(task.family).index(habit))
        assert stream_of(task) == 'train'
        return under(task, habit)
    monkeypatch.setattr('evolora.host.habit_host.under', told_under)
    for consistent in (1., 0.):
        told.clear()
        for i in range(120):
            told.append(set())
            HabitConfig(consistent=consistent).document(stream(1, purpose='documents', organelle=i), 0)
        several = np.mean([len(x) > 1 for x in told])
        assert several == 0 if consistent else several > .3


def test_training_it_is_the_same_loop_byte_for_byte(tmp_path, capfd):
    small = HabitConfig(hidden=32, layers=2, rows=2, row=128, steps=4, first_stage=2, checkpoint_every=2)
    class Stop(Exception): pass
    def stop(step, loss):
        if step == 3: raise Stop
    pretrain(small, tmp_path / 'whole')
    with pytest.raises(Stop): pretrain(small, tmp_path / 'broken', on_step=stop)
    pretrain(small, tmp_path / 'broken')
    assert capfd.readouterr() == ('', ''), 'no bar of transformers is drawn, and the hook is that of before'
    assert transformers_logging.set_tqdm_hook(None) is None
    assert (tmp_path / 'whole/model.safetensors').read_bytes() == (tmp_path / 'broken/model.safetensors').read_bytes()
    with pytest.raises(ValueError, match='other settings'):
        pretrain(small.model_copy(update={'slips': .5}), _begun(tmp_path, small))


def _begun(folder, config):
    "A folder with a checkpoint"
    class Stop(Exception): pass
    def stop(step, loss):
        if step == 3: raise Stop
    try: pretrain(config, folder / 'begun', on_step=stop)
    except Stop: return folder / 'begun'
