"""Masks of attention that one number of a call decides: which are recognised, and a decoding step with one."""

import pytest

import maco

torch = pytest.importorskip("torch")
F = torch.nn.functional

KEYS = 12


def added(at):
    """As HF's models write it: the lowest number where keys aren't to be seen."""
    mask = torch.full((1, KEYS), torch.finfo(torch.float32).min)
    mask = mask * (torch.arange(KEYS) > at.reshape(-1, 1))
    return mask[None, None, :, :].expand(1, 1, -1, -1)


RECOGNISED = {
    "le": lambda at: torch.arange(KEYS)[None] <= at[:, None],
    "ge": lambda at: at[:, None] >= torch.arange(KEYS),
    "lt of the next": lambda at: torch.arange(KEYS)[None] < at[:, None] + 1,
    "not gt": lambda at: ~(torch.arange(KEYS)[None] > at[:, None]),
    "added": added,
    "where": lambda at: torch.where(torch.arange(KEYS)[None] <= at[:, None], 0.0, float("-inf")),
    "of f16's lowest": lambda at: torch.where(torch.arange(KEYS)[None] <= at[:, None], 0.0, -65504.0).bfloat16(),
    "of heads": lambda at: (torch.arange(KEYS)[None] <= at[:, None]).expand(1, 4, 1, KEYS),
    "masked_fill": lambda at: torch.zeros(1, KEYS).masked_fill(torch.arange(KEYS)[None] > at[:, None], float("-inf")),
}
OTHERS = {
    "lt": lambda at: torch.arange(KEYS)[None] < at[:, None],
    "a window": lambda at: (torch.arange(KEYS)[None] <= at[:, None]) & (torch.arange(KEYS)[None] > at[:, None] - 4),
    "from there": lambda at: torch.arange(KEYS)[None] >= at[:, None],
    "one key less": lambda at: (torch.arange(KEYS)[None] <= at[:, None]) & (torch.arange(KEYS) != 5),
    "other numbers": lambda at: (torch.arange(KEYS) * 2)[None] <= at[:, None],
    "of one head": lambda at: (torch.arange(KEYS)[None] <= at[:, None]) | (torch.arange(4)[:, None] == 2),
    "a penalty": lambda at: torch.where(torch.arange(KEYS)[None] <= at[:, None], 0.0, -100.0),
    "a bias": lambda at: (torch.arange(KEYS)[None] <= at[:, None]).float(),
    "no comparison": lambda at: (torch.arange(KEYS)[None] - at[:, None]).clamp(0, 1).bool().logical_not(),
}


def masked(mask, at):
    from torch.fx.experimental.proxy_tensor import make_fx

    from maco.fx_masks import seen_up_to

    gm = make_fx(mask)(at)
    output = next(node for node in gm.graph.nodes if node.op == "output")
    return seen_up_to(output.args[0], 1, KEYS)


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_mask_up_to_a_number(name):
    assert masked(RECOGNISED[name], torch.tensor([3])).op == "placeholder"


@pytest.mark.parametrize("name", OTHERS)
def test_other_masks(name):
    assert masked(OTHERS[name], torch.tensor([3])) is None


class Step(torch.nn.Module):
    """Attention of one new token over a cache that it is added to."""

    def __init__(self, mask, heads_first):
        super().__init__()
        self.mask = mask
        self.axis = 2 if heads_first else 0
        shape = (1, 2, KEYS, 8) if heads_first else (KEYS, 2, 8)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, q, k, v, at):
        new = [one.transpose(0, 1)[None] if self.axis else one for one in (k, v)]
        self.keys.index_copy_(self.axis, at, new[0])
        self.values.index_copy_(self.axis, at, new[1])
        cache = [one if self.axis else one.transpose(0, 1)[None] for one in (self.keys, self.values)]
        y = F.scaled_dot_product_attention(q.transpose(0, 1)[None], *cache, attn_mask=self.mask(at), enable_gqa=True)
        return y[0].transpose(0, 1).reshape(1, -1)


@pytest.mark.parametrize("heads_first", [False, True])
def test_a_decoding_step_is_one_launch(heads_first):
    torch.manual_seed(0)
    ours, eager = Step(RECOGNISED["le"], heads_first), Step(RECOGNISED["le"], heads_first)
    compiled = maco.compile(ours, strict=True)
    place = ours.keys.data_ptr()
    with torch.no_grad():
        for at in (0, 1, 2, KEYS - 1):
            given = [torch.randn(1, heads, 8) for heads in (4, 2, 2)]
            torch.testing.assert_close(compiled(*given, torch.tensor([at])), eager(*given, torch.tensor([at])))
        torch.testing.assert_close(ours.keys, eager.keys)
        assert ours.keys.data_ptr() == place
        report = maco.explain(Step(RECOGNISED["le"], heads_first), *given, torch.tensor([3]))
        assert report.launches == 1 and not report.fallbacks


def test_a_window_is_right_too():
    torch.manual_seed(0)
    ours, eager = Step(OTHERS["a window"], False), Step(OTHERS["a window"], False)
    compiled = maco.compile(ours)
    with torch.no_grad():
        for at in range(6):
            given = [torch.randn(1, heads, 8) for heads in (4, 2, 2)]
            torch.testing.assert_close(compiled(*given, torch.tensor([at])), eager(*given, torch.tensor([at])))
