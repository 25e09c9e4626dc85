"""Ids from logits, against transformers' own processors with the same numbers."""

import pytest

import maco

numpy = pytest.importorskip("numpy")
from maco.models.sampling import Sampler, Sampling  # noqa: E402

VOCABULARY = 500


def logits(seed, scale=3.0, vocabulary=VOCABULARY):
    return (numpy.random.default_rng(seed).standard_normal(vocabulary) * scale).astype(numpy.float32)


def sampler(prompt=(), seed=0, vocabulary=VOCABULARY, **how):
    checked = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "penalty": 1, **how}
    return Sampler(Sampling.checked(**checked), list(prompt), vocabulary, (seed, 0))


def of_transformers(values, prompt, temperature=1, top_k=0, top_p=1, min_p=0, penalty=1):
    """The probabilities that generate(do_sample=True) draws from."""
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers").generation.logits_process
    chain = process.LogitsProcessorList()
    if penalty != 1:
        chain.append(process.RepetitionPenaltyLogitsProcessor(float(penalty)))
    if temperature != 1:
        chain.append(process.TemperatureLogitsWarper(float(temperature)))
    if top_k:
        chain.append(process.TopKLogitsWarper(top_k))
    if top_p < 1:
        chain.append(process.TopPLogitsWarper(float(top_p)))
    if min_p:
        chain.append(process.MinPLogitsWarper(float(min_p)))
    return torch.softmax(chain(torch.tensor([list(prompt)]), torch.tensor(values)[None].clone()), -1)[0].double().numpy()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 40},
        {"top_k": 10000},
        {"top_p": 0.9},
        {"top_p": 0.03},
        {"top_p": 0},
        {"min_p": 0.05},
        {"min_p": 1},
        {"penalty": 1.3},
        {"penalty": 0.8},
        {"temperature": 0.8, "top_k": 50, "top_p": 0.95},
        {"temperature": 1.4, "top_k": 30, "top_p": 0.6, "min_p": 0.2, "penalty": 1.7},
        {"top_p": 0.9, "min_p": 0.02},
    ],
)
def test_candidates_are_those_of_transformers(how):
    for seed in range(8):
        values, prompt = logits(seed), [3, 3, 17, 250, seed]
        expected = of_transformers(values, prompt, **how)
        own = sampler(prompt, **how)
        mine = values.copy()
        if "penalty" in how:  # as a call does
            there = numpy.unique(prompt)
            penalty = numpy.float32(how["penalty"])
            mine[there] = numpy.where(mine[there] < 0, mine[there] * penalty, mine[there] / penalty)
        ids, weights = own.candidates(mine)
        found = numpy.zeros(VOCABULARY)
        found[ids] = weights / weights.sum()
        assert set(numpy.flatnonzero(expected)) == set(ids), how
        numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_of_many_ids_few_are_sorted():
    """top_p looks at the likeliest first, and at all where that isn't enough."""
    for scale in (0.01, 8.0):
        values = logits(1, scale, 50_000)
        ids, _ = sampler(top_p=0.5, vocabulary=50_000).candidates(values.copy())
        assert set(ids) == set(numpy.flatnonzero(of_transformers(values, [1], top_p=0.5)))


def test_equals_stay_together():
    values = numpy.zeros(VOCABULARY, numpy.float32)
    values[[5, 9, 300]] = 2
    ids, weights = sampler(top_k=2).candidates(values.copy())
    assert list(ids) == [5, 9, 300] and len(set(weights)) == 1
    assert sampler(temperature=0)(values.copy()) == 5  # the first


def test_draws_have_the_probabilities():
    values = logits(3, 1.5, 20)
    draw = sampler(seed=5, vocabulary=20)
    counts = numpy.bincount([draw(values.copy()) for _ in range(20_000)], minlength=20)
    expected = numpy.exp(values.astype(numpy.float64))
    expected *= 20_000 / expected.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared of 19 degrees of freedom: 0.9993


def test_a_seed_gives_the_same_ids_and_others_do_not():
    def ids(seed):
        draw = sampler(seed=seed)
        return [draw(logits(i)) for i in range(20)]

    assert ids(1) == ids(1) != ids(2)


def test_a_penalty_counts_new_ids_too():
    values = numpy.zeros(VOCABULARY, numpy.float32)
    values[:3] = [2.0, 1.9, 1.8]
    take = sampler(prompt=[400], temperature=0, penalty=1.2)
    assert [take(values.copy()) for _ in range(4)] == [0, 1, 2, 0]
    values[400] = 2.2
    assert sampler(prompt=[400], temperature=0, penalty=1.2)(values.copy()) == 0
    values[:] = -5
    values[400] = -4.9
    assert sampler(prompt=[400], temperature=0, penalty=1.2)(values.copy()) == 0  # a negative one is multiplied


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf])
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_what_is_no_number_is_refused(bad, temperature):
    values = logits(0)
    values[7] = bad
    with pytest.raises(maco.Error, match="the highest logit is"):
        sampler(temperature=temperature)(values)


def test_minus_infinity_is_never_drawn():
    values = numpy.full(VOCABULARY, -numpy.inf, numpy.float32)
    values[11] = 0
    assert {sampler(seed=s)(values.copy()) for s in range(50)} == {11}


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ({"temperature": -1}, maco.Error, "temperature is a number from 0 on, not -1"),
        ({"temperature": float("inf")}, maco.Error, "temperature"),
        ({"temperature": float("nan")}, maco.Error, "temperature"),
        ({"temperature": "warm"}, TypeError, "temperature is a number, not a str"),
        ({"top_k": -3}, maco.Error, "top_k is at least 0"),
        ({"top_k": 1.5}, TypeError, "top_k"),
        ({"top_p": 1.1}, maco.Error, "top_p is a number from 0 to 1"),
        ({"min_p": -0.1}, maco.Error, "min_p is a number from 0 to 1"),
        ({"penalty": 0}, maco.Error, "repetition_penalty is a number above 0"),
        ({"penalty": True}, TypeError, "repetition_penalty"),
    ],
)
def test_wrong_numbers_are_refused_by_name(how, kind, text):
    with pytest.raises(kind, match=text):
        sampler(**how)
