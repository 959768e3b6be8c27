"A film has few frames, nothing in it jumps, and it is there completely or not at all."
import numpy as np
import pytest
from hostile import write_hostile
from PIL import Image
from synthetic import write_run

import evolora.analysis.run_animation
from evolora.analysis.run_animation import timeline


def frames(path):
    with Image.open(path) as film:
        for i in range(film.n_frames):
            film.seek(i)
            yield np.asarray(film.convert('L'), int)


@pytest.mark.parametrize('kind', ['gif', 'webp'])
def test_a_long_run_is_a_short_film_in_which_only_new_things_appear(tmp_path, kind):
    folder = write_run(tmp_path / 'run', generations=90, size=6, tries=2).folder
    path = timeline(folder, tmp_path / f'film.{kind}', most=12)
    shown = list(frames(path))
    assert len(shown) == 12 and path.stat().st_size < 3_000_000 and {f.shape for f in shown} == {shown[0].shape}
    drawn = [(f[75:] < 128).sum() for f in shown]
    assert drawn[-1] > drawn[0]
    for before, after in zip(shown, shown[1:]):         # dark stays dark, but for the line that moves
        gone = ((before[75:] < 110) & (after[75:] > 200)).sum()
        assert gone < .002 * before.size


def test_hostile_names_and_one_generation_make_a_film(tmp_path):
    folder = write_hostile(tmp_path / 'r\x1b[2J', generations=1)
    assert len(list(frames(timeline(folder)))) == 1


def test_nothing_is_written_over_and_nothing_half(tmp_path, monkeypatch):
    folder = write_run(tmp_path / 'run', generations=3, size=4, tries=1).folder
    before = sorted(folder.iterdir())
    for out, seconds, message in (('film.mp4', 8, 'is .gif or .webp'), ('run.json', 8, 'is .gif or .webp'),
                                  ('x.gif', 0, '.5 to 120')):
        with pytest.raises(ValueError, match=message): timeline(folder, folder / out, seconds=seconds)
    def stopped(*_): raise KeyboardInterrupt
    monkeypatch.setattr(evolora.analysis.run_animation, '_encode', stopped)
    with pytest.raises(KeyboardInterrupt): timeline(folder)
    assert sorted(folder.iterdir()) == before
    (folder / 'timeline.gif').write_text('mine')
    with pytest.raises(ValueError, match='which exists'): timeline(folder)


def test_a_place_that_takes_no_film_is_refused_before_a_run_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(evolora.analysis.run_animation, 'load', lambda folder: pytest.fail('it was read'))
    for out in ('/proc/x.gif', '/proc/new/x.gif', tmp_path / f'{"x" * 300}.gif'):
        with pytest.raises(ValueError, match='expected a place for a new file'): timeline(tmp_path, out)
    assert [*tmp_path.iterdir()] == []
