"""What the models read: the same on every machine, split before anything is learned; and no text is trusted"""
import os

import numpy as np
import pytest
import torch
from quick import FRAMEWORK, QUICK, Inside, scaled

from evolora.attention.scoring import corpus
from evolora.attention.scoring.corpus import (IGNORED, Corpus, corpus_of, draw, read_corpus, recall_rows, recall_share,
                                              standard_library)
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.scoring.model_sizes import LanguageModel, Size, Tier, parameters
from evolora.host.mechanisms.program_source import build
from evolora.attention.scoring.exam import train
from evolora.utils.randomness import stream


@pytest.fixture(scope='module')
def library(): return standard_library(64, most=400_000)


@pytest.fixture
def story(tmp_path):
    "Twenty files, no two alike"
    for k in range(20): (tmp_path / f'{k}.txt').write_text(f'Chapter {k}: ' + f'word{k} and others. ' * 100)
    return tmp_path


def test_the_library_is_always_the_same_and_its_digest_differs_when_not(library):
    assert standard_library(64, most=400_000).digest == library.digest
    assert (len(library.train), len(library.held)) == (240_000, 160_000) and library.train.max() < 64
    for other in (standard_library(128, most=400_000), standard_library(64, most=300_000)):
        assert other.digest != library.digest
    renamed = Corpus('x', library.train, library.held, 64)
    assert renamed.digest == library.digest and renamed.epochs(480_000) == 2.
    with pytest.raises(ValueError, match='read-only'): library.train[0] = 1


def test_bytes_are_kept_with_256_tokens_and_the_rarest_share_one_below():
    whole, small = standard_library(256, most=400_000), standard_library(64, most=400_000)
    assert b'import' in whole.train.tobytes()
    # What has a token of its own can be distinguished from all else.
    kept = [set(small.train[whole.train == byte].tolist()) for byte in np.unique(whole.train)]
    assert all(len(tokens) == 1 for tokens in kept) and sum(tokens == {63} for tokens in kept) == len(kept) - 63


def test_pairs_are_learned_from_the_part_to_train_on_and_always_the_same(story):
    found, again = read_corpus(story, 300), read_corpus(story, 300)
    assert found.digest == again.digest and found.train.dtype == np.uint16 and 256 <= found.train.max() < 300
    (story / '0.txt').write_text('zqzqzqzq ' * 300)
    changed = read_corpus(story, 300)
    assert changed.digest != found.digest


def test_a_word_of_megabytes_is_learned_in_pieces_and_others_are_left_whole(tmp_path, monkeypatch):
    (path := tmp_path / 'a.txt').write_text('ab' * 200_000)
    assert read_corpus(path, 16_384).train.max() > 256
    path.write_text(''.join(f"{'ab' * (n % 490 + 1)} é{n}\n" for n in range(500)))
    found = read_corpus(path, 300)
    monkeypatch.setattr(corpus, '_WORD', 1 << 30)
    assert read_corpus(path, 300).digest == found.digest


def test_a_contained_process_learns_the_same_pairs_and_trains_on_them(story, tmp_path_factory):
    tier = Tier(**QUICK.model_dump() | {'vocab': 300})
    evaluator = Evaluator(FRAMEWORK, tier, corpus=story, cache=tmp_path_factory.mktemp('cache'), secret='')
    evaluator.prepare(Inside())         # softmax
    found = evaluator.evaluate(scaled(.3))
    assert found['status'] == 'ok', found['why']
    size = Size(*tier.sizes[0])
    counted = parameters(LanguageModel(build(scaled(.3)), size, 300))
    assert found['measured']['parameters'][0] == counted['without_embedding'] == counted['all'] - 300 * size.dim
    ours = train(build(scaled(.3)), tier, size, seed=0, corpus=read_corpus(story, 300))
    assert ours.losses[1.] == found['measured']['losses']['1.0'][0][0]


def test_files_are_held_back_as_a_whole(story):
    found = read_corpus(story, 256)
    train, held = found.train.tobytes(), found.held.tobytes()
    assert len(held) > len(train) / 20 and held.count(b'Chapter') >= 2
    assert not {line for line in held.split(b'Chapter ')[1:]} & {line for line in train.split(b'Chapter ')[1:]}
    (story / 'all.txt').write_text('abcdefghi\n' * 2000)
    one = read_corpus(story / 'all.txt', 256)
    assert (len(one.train), len(one.held)) == (18_000, 2_000)


def test_an_answer_is_on_the_card_of_its_key():
    ids, targets = recall_rows(stream(3), rows=50, context=32, vocab=64)
    codes = ids - 16                    # keys, values and cards are the last 48 tokens
    for row, counted in zip(codes, targets):
        cards = {(card - 12) // 6: (card - 12) % 6 for card in row[:6]}
        assert sorted(cards) == list(range(6)) and all(0 <= value < 6 for value in cards.values())
        assert (counted[:6] == IGNORED).all() and (counted[7::2] == IGNORED).all()
        for place in range(6, 32, 2):
            assert counted[place] == row[place + 1] + 16 == cards[row[place]] + 6 + 16
    # What a key is worth in one row is independent of the next.
    assert len({tuple(row[:6]) for row in codes}) == 50
    for context, vocab in ((7, 64), (6, 64), (32, 47)):
        with pytest.raises(ValueError, match='recall expected'): recall_rows(stream(0), 1, context, vocab)


def test_what_is_no_text_is_refused_by_name(story):
    for name, data, why in [('x.png', b'\x89PNG\0\0', 'x.png'), ('l.txt', 'é'.encode('latin-1'), 'l.txt')]:
        (story / name).write_bytes(data)
        with pytest.raises(ValueError, match=f'expected UTF-8 text, got .*{why}'): read_corpus(story)
        (story / name).unlink()
    (story / '.hidden').write_bytes(b'\0')
    (story / 'link.txt').symlink_to('/dev/zero')
    assert read_corpus(story).vocab == 256
    os.mkfifo(story / 'pipe.txt')       # reading it would wait for ever
    assert read_corpus(story).vocab == 256
    with pytest.raises(ValueError, match='neither'): read_corpus(story / 'pipe.txt')
    with pytest.raises(ValueError, match='at most 100 bytes'): read_corpus(story, most=100)
    with pytest.raises(ValueError, match='at least 10,000 bytes'): read_corpus(story / '1.txt')
    with pytest.raises(ValueError, match='neither'): read_corpus(story / 'nothing')
    (story / 'empty').mkdir()
    with pytest.raises(ValueError, match='empty folder'): read_corpus(story / 'empty')


@pytest.mark.skipif(os.geteuid() == 0, reason='root may read everything')
def test_what_cannot_be_read_is_named(story):
    (story / '4.txt').chmod(0)
    with pytest.raises(ValueError, match='4.txt .*check its rights'): read_corpus(story)


@pytest.mark.parametrize('vocab', [0, 47, 1 << 17, 64., True, '64'])
def test_vocabularies_are_checked(vocab):
    with pytest.raises(ValueError, match='vocab expected a number'): standard_library(vocab)


def test_a_batch_is_known_by_seed_and_step(library):
    def batch(**changes): return draw(library, **dict(seed=0, step=0, rows=8, context=32) | changes)
    ids, targets = batch()
    assert ids.shape == targets.shape == (8, 32) and ids.dtype == targets.dtype == torch.int64
    assert torch.equal(ids, batch()[0]) and torch.equal(targets, batch()[1])
    assert not torch.equal(ids, batch(step=1)[0]) and not torch.equal(ids, batch(seed=1)[0])
    assert torch.equal(ids[:6, 1:], targets[:6, :-1]) and not (targets[:6] == IGNORED).any()
    assert (targets[6:] == IGNORED).any(1).all() and 0 <= ids.min() and ids.max() < 64
    for recall, text in ((0., 8), (1., 0), (.5, 4)):
        counted = (batch(recall=recall)[1] != IGNORED).sum(1)
        assert (counted == 32).sum() == text
    with pytest.raises(ValueError, match='recall expected a share'): batch(recall=1.5)
    with pytest.raises(ValueError, match='longer text'): batch(context=400_000)
    assert recall_share(8, .25) == 2
