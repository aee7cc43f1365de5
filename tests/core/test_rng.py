import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from infoshot.core.rng import choose, random_bits


def test_bits_depend_on_seed_stream_and_task_only():
    all_at_once = random_bits(3, 1, torch.arange(50), (4, 5))
    alone = random_bits(3, 1, torch.tensor([17]), (4, 5))
    assert torch.equal(all_at_once[17:18], alone)
    assert not torch.equal(all_at_once, random_bits(4, 1, torch.arange(50), (4, 5)))
    assert not torch.equal(all_at_once, random_bits(3, 2, torch.arange(50), (4, 5)))


def test_bits_equal_those_of_splitmix64():
    # The hash in Python's integers, which do not overflow.
    mask = 2**64 - 1

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    seed, stream, task = 12345, 1, 9
    root = mix((mix((seed * golden + golden) & mask) + stream * golden) & mask)
    start = mix((root + task * golden) & mask)
    expected = [mix((start + (i + 1) * golden) & mask) >> 32 for i in range(6)]
    assert random_bits(seed, stream, torch.tensor([task]), (6,))[0].tolist() == expected


def test_bits_are_uniform():
    bits = random_bits(0, 0, torch.arange(20_000), (5,)).flatten().double() / 2**32
    assert stats.kstest(bits.numpy(), "uniform").pvalue > 1e-3


def test_every_ordered_choice_is_equally_likely():
    n = 60_000
    chosen = choose(7, 0, torch.arange(n), torch.full((n,), 5), 3)
    codes = (chosen * torch.tensor([25, 5, 1])).sum(-1)
    counts = codes.bincount()[codes.unique()]
    assert len(counts) == 60
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_choices_from_large_sets_are_uniform():
    n = 30_000
    chosen = choose(1, 0, torch.arange(n), torch.full((n,), 600), 20)
    assert all(len(set(row)) == 20 for row in chosen[:200].tolist())
    counts = chosen.flatten().bincount(minlength=600)
    assert len(counts) == 600
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(1, 30), st.integers(0, 30), st.integers(0, 10**12))
def test_choices_are_different_and_in_range(seed, n, spare, task):
    sizes = torch.tensor([[n + spare, n]])
    chosen = choose(seed, 1, torch.tensor([task]), sizes, n)
    assert chosen.shape == (1, 2, n)
    assert (chosen >= 0).all()
    assert (chosen < sizes.unsqueeze(-1)).all()
    assert all(len(set(row)) == n for row in chosen[0].tolist())
