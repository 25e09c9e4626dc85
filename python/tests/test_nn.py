"""Layers whose weights lie on several ranks."""

import copy
import pickle

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")


def close(got, want):
    assert got.shape == want.shape
    assert torch.allclose(got, want, atol=1e-5, rtol=1e-4), (got, want)


def against_all_whole_layers():
    for kind in ("parallel", "gathered"):
        for bias in (False, True):
            against_whole_layers(kind, bias)


def against_whole_layers(kind, bias):
    from maco.nn import ColumnParallelLinear, RowParallelLinear

    world, rank = maco.get_world_size(), maco.get_rank()
    torch.manual_seed(1)
    first, second = torch.nn.Linear(5, 12, bias), torch.nn.Linear(12, 7, bias)
    x, target = torch.randn(2, 3, 5), torch.randn(2, 3, 7)
    parallel = kind == "parallel"
    torch.manual_seed(1)
    columns = ColumnParallelLinear(5, 12, bias, gather_output=not parallel)
    rows = RowParallelLinear(12, 7, bias, input_is_parallel=parallel)
    assert columns.weight.shape == (12 // world, 5) and rows.weight.shape == (7, 12 // world)
    whole_x, own_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    whole_h, own_h = torch.relu(first(whole_x)), torch.relu(columns(own_x))
    assert own_h.shape[-1] == (12 // world if parallel else 12)
    whole_y, own_y = second(whole_h), rows(own_h)
    close(own_y, whole_y)
    for y in (whole_y, own_y):
        (y - target).pow(2).sum().backward()
    close(own_x.grad, whole_x.grad)
    close(columns.weight.grad, first.weight.grad.chunk(world, 0)[rank])
    close(rows.weight.grad, second.weight.grad.chunk(world, 1)[rank])
    if bias:
        close(columns.bias.grad, first.bias.grad.chunk(world, 0)[rank])
        close(rows.bias.grad, second.bias.grad)
    # A step of each rank's optimizer is a step of the whole layers.
    for parameters in (list(first.parameters()) + list(second.parameters()), list(columns.parameters()) + list(rows.parameters())):
        torch.optim.SGD(parameters, lr=0.1).step()
    close(rows(torch.relu(columns(x))), second(torch.relu(first(x))))


def tp_linear():
    from maco.nn import TPLinear

    world, rank = maco.get_world_size(), maco.get_rank()
    layer = TPLinear(12, 4, world_size=world)
    torch.manual_seed(2)
    weight, x = torch.randn(4, 12, requires_grad=True), torch.randn(3, 12, requires_grad=True)
    with torch.no_grad():
        layer.weight.copy_(weight.chunk(world, 1)[rank])
    own = x.detach().chunk(world, 1)[rank].clone().requires_grad_()
    y, want = layer(own), x @ weight.T
    close(y, want)
    y.pow(2).sum().backward()
    want.pow(2).sum().backward()
    close(layer.weight.grad, weight.grad.chunk(world, 1)[rank])
    close(own.grad, x.grad.chunk(world, 1)[rank])
    with pytest.raises(maco.Error, match=f"world_size is 9, but there are {world} ranks"):
        TPLinear(12, 4, 9)


def compiled():
    from maco.nn import ColumnParallelLinear, RowParallelLinear

    torch.manual_seed(3)
    model = torch.nn.Sequential(ColumnParallelLinear(4, 8), torch.nn.ReLU(), RowParallelLinear(8, 4))
    x = torch.randn(2, 4)
    want = model(x)
    want.sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    y = fast(x)
    close(y, want)
    y.sum().backward()
    for one, grad in zip(model.parameters(), grads, strict=True):
        close(one.grad, grad)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_gradients_are_those_of_whole_layers(world):
    ranks.run(world, against_all_whole_layers)


@pytest.mark.parametrize("world", [1, 2])
def test_tp_linear(world):
    ranks.run(world, tp_linear)


def test_layers_in_torch_compile():
    ranks.run(2, compiled)


def uneven():
    from maco.nn import ColumnParallelLinear, RowParallelLinear, TPLinear

    for make in (lambda: ColumnParallelLinear(4, 5), lambda: RowParallelLinear(5, 4), lambda: TPLinear(5, 4)):
        with pytest.raises(maco.Error, match="features is 5, which can't be cut into 2 equal parts"):
            make()


def test_features_that_ranks_cannot_share():
    ranks.run(2, uneven)


def test_wrong_arguments():
    from maco.nn import ColumnParallelLinear

    with pytest.raises(TypeError, match="in_features is a number of features, not a float"):
        ColumnParallelLinear(4.0, 8)
    with pytest.raises(maco.Error, match="out_features is 0"):
        ColumnParallelLinear(4, 0)
    with pytest.raises(maco.Error, match="has other features"):
        ColumnParallelLinear(4, 8).take(torch.nn.Linear(4, 4, bias=False))


def test_weights_are_those_of_a_linear_layer():
    from maco.nn import ColumnParallelLinear

    torch.manual_seed(4)
    want = torch.nn.Linear(6, 8)
    torch.manual_seed(4)
    layer = ColumnParallelLinear(6, 8, bias=True)
    assert torch.equal(layer.weight, want.weight) and torch.equal(layer.bias, want.bias)
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert "gather_output=False" in repr(layer)
    half = ColumnParallelLinear(6, 8, dtype=torch.bfloat16)
    assert half.weight.dtype is torch.bfloat16 and half.bias is None


class Bare(maco.Module):
    def __init__(self, width):
        self.width = width
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)


class Full(maco.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)


@pytest.mark.parametrize("kind", [Bare, Full])
def test_a_module_with_and_without_super(kind):
    model = kind(3)
    assert len(list(model.parameters())) == 2 and isinstance(model, torch.nn.Module)
    assert model(torch.ones(2, 3)).shape == (2, 3)
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(torch.ones(2, 3)), model(torch.ones(2, 3)))
    assert type(again.eval().to(torch.float64)) is kind
