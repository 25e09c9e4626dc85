"""On a GPU: sessions with torch's tensors, on its streams, in its CUDA graphs. Skipped where there is none."""

import os
from pathlib import Path

import pytest
import ranks

import maco
from maco.program import program

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

M, N, K = 64, 512, 256


def product():
    g = maco.Graph("product")
    x, w = g.input("x", "bf16", [M, K]), g.param("w", "bf16", [N, K])
    g.output("y", g.relu(g.matmul(x, w, transpose_b=True)))
    return g


def tensors(count=1):
    torch.manual_seed(1)
    w = torch.randn(N, K, device="cuda", dtype=torch.bfloat16) / 16
    made = [
        {
            "x": torch.randn(M, K, device="cuda", dtype=torch.bfloat16),
            "w": w,
            "y": torch.zeros(M, N, device="cuda", dtype=torch.bfloat16),
        }
        for _ in range(count)
    ]
    return made if count > 1 else made[0]


def right(t, y=None):
    torch.testing.assert_close(t["y"] if y is None else y, torch.relu(t["x"] @ t["w"].T), rtol=2e-2, atol=2e-2)


def test_bound_tensors_are_used_on_torchs_stream_and_in_its_graphs():
    t = tensors()
    with maco.Session(product().compile()) as s:
        for name, tensor in t.items():
            s.bind(name, tensor)
        s.run()
        right(t)
        t["x"].normal_()
        s.launch()
        right(t)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            t["x"].normal_()
            s.launch()
            copied = t["y"] + 0
        stream.synchronize()
        right(t, copied)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            s.launch()
        for _ in range(3):
            t["x"].normal_()
            graph.replay()
            right(t)
        s.wait()


def test_a_program_takes_other_tensors_each_time():
    p = program(product(), device="cuda", index=torch.cuda.current_device())
    sets = tensors(40)  # more than the driver's tables that are kept
    for t in [*sets, *reversed(sets)]:
        p(t)
    torch.cuda.synchronize()
    for t in sets:
        right(t)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        p(sets[0])
        doubled = sets[0]["y"] * 2
    for t in sets[1:]:
        p(t)
    sets[0]["x"].normal_()
    graph.replay()
    right(sets[0])
    right(sets[0], doubled / 2)
    p.wait()


def test_what_has_no_place_is_copied():
    p = program(product(), device="cuda", index=torch.cuda.current_device())
    t = tensors()
    t["x"] = t["x"].t().contiguous().t()
    t["w"] = torch.cat([t["w"].new_zeros(1), t["w"].flatten()])[1:].view(N, K)  # 2 bytes beyond a multiple of 16
    t["y"] = torch.zeros(M, 2 * N, device="cuda", dtype=torch.bfloat16)[:, ::2]
    p(t)
    right(t)


def test_tensors_of_other_devices_are_refused():
    p = program(product(), device="cuda", index=torch.cuda.current_device())
    t = tensors()
    t["x"] = t["x"].cpu()
    with pytest.raises(maco.Error, match="'x' must be on a GPU"):
        p(t)


def test_a_compiled_module_and_its_gradients():
    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 128)).cuda()
    compiled = maco.compile(module)
    x = torch.randn(32, 256, device="cuda", requires_grad=True)
    for run in (compiled, module):
        module.zero_grad()
        x.grad = None
        y = run(x)
        y.square().sum().backward()
        if run is compiled:
            ours = [y.detach().clone(), x.grad.clone(), *(p.grad.clone() for p in module.parameters())]
    for a, b in zip(ours, [y.detach(), x.grad, *(p.grad for p in module.parameters())], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


def all_reduces():
    """On each rank: all-reduces in place until they have kernels of their own, and behind that."""
    import torch.distributed as dist

    gpu = torch.device("cuda", int(os.environ["RANK"]))
    torch.cuda.set_device(gpu)
    dist.init_process_group("cpu:maco,cuda:maco")
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16):
        for n in (1, 24, 4096):
            memory = torch.empty(2, n + 8, device=gpu, dtype=dtype)
            for turn in range(40):
                x = memory[turn % 2, :n] if turn % 3 else memory[turn % 2, 1 : n + 1]  # some not aligned
                x.fill_(turn + rank)
                work = dist.all_reduce(x, dist.ReduceOp.SUM if turn % 5 else dist.ReduceOp.MAX, async_op=True)
                work.wait()
                want = world * turn + world * (world - 1) / 2 if turn % 5 else turn + world - 1
                torch.testing.assert_close(x, torch.full_like(x, want))
    dist.destroy_process_group()
    return True


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed")
def test_all_reduces_in_place_get_kernels_of_their_own():
    assert ranks.run(2, all_reduces, timeout=200, env={"MACO_DEVICE": ""}) == [True, True]


def test_row_numbers_of_64_bits_are_read_where_they_are():
    cache, values = torch.zeros(8, 64, device="cuda"), torch.randn(1, 64, device="cuda")

    def step(cache, at, values):
        cache.index_put_((at,), values)
        return cache.sum()

    compiled = maco.compile(step)
    with torch.no_grad():
        for number in (3, -1, 0, 7, -8):
            at = torch.tensor([number], device="cuda")
            want = cache.clone()
            want[number] = values
            compiled(cache, at, values)
            torch.testing.assert_close(cache, want)


TINY = Path(__file__).resolve().parents[2] / "examples" / "checkpoints" / "tiny-llama"
ANSWERS = [  # on the CPU target: prompts, and what comes behind them
    ([1, 7, 9, 4], [12, 21, 24, 21, 24, 21, 21, 21, 23, 29, 4, 4, 1, 30, 21, 21, 15, 21, 21, 21, 6, 21, 23, 21], "length"),
    ([3], [7, 22, 22, 22, 13, 26, *[22] * 18], "length"),
    (list(range(3, 26)), [10, *[30] * 23], "length"),
    ([i * 11 % 29 + 3 for i in range(60)], [3, 21, 21, 23, 9, 2], "stop"),
]


def answers(tp):
    with maco.LLM(TINY, tp=tp, device="cuda", chunk=16) as llm:
        found = [llm.generate(ids, 24) for ids, _, _ in ANSWERS]
        assert [(one.token_ids, one.finish_reason) for one in found] == [(new, why) for _, new, why in ANSWERS]
        assert [one.token_ids for one in llm.generate([ids for ids, _, _ in ANSWERS], 24)] == [new for _, new, _ in ANSWERS]
        for ids, new, _ in ANSWERS:
            assert [piece.token_ids[0] for piece in llm.generate(ids, 24, stream=True)] == new
            assert llm.generate(ids, 24, temperature=0.5, top_k=1).token_ids == new
            told = llm.logits([*ids, *new])
            assert told.argmax(1)[len(ids) - 1 : -1].tolist() == new
        for _ in llm.generate([3], 100, stream=True):
            break
        step = llm._engine.step

        def interrupted():
            step()
            raise KeyboardInterrupt

        llm._engine.step = interrupted
        with pytest.raises(KeyboardInterrupt):
            llm.generate([3], 100)
        llm._engine.step = step
        assert llm.generate([3], 100).token_ids[:24] == ANSWERS[1][1]


@pytest.mark.parametrize("tp", [1, 2])
def test_a_checkpoint_answers(tp):
    if not TINY.is_dir():
        pytest.skip("not in a checkout")
    if torch.cuda.device_count() < tp:
        pytest.skip(f"not {tp} GPUs")
    pytest.importorskip("numpy")
    answers(tp)


def test_a_checkpoint_answers_in_processes():
    if not TINY.is_dir():
        pytest.skip("not in a checkout")
    if torch.cuda.device_count() < 2:
        pytest.skip("not 2 GPUs")
    ranks.run(2, answers, 2, env={"MACO_DEVICE": ""})
