"""The programs of the API document, as they stand there but for imports and sizes, on the CPU target with 128 SMs."""

import contextlib
import io
import json

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")
nn = torch.nn
SNIPPETS = []


def snippet(function):
    SNIPPETS.append(function)
    return function


def seeded(*shape, seed=0):
    """The same tensor on every rank, where tensors are made."""
    made = torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return made.to(torch.get_default_device())


def own(*shape, seed=0):
    """Each rank's own tensor, and that of all ranks."""
    world = maco.get_world_size()
    every = [seeded(*shape, seed=seed * 100 + i) for i in range(world)]
    return every[maco.get_rank()], every


def close(found, want):
    torch.testing.assert_close(torch.as_tensor(found), want, rtol=1e-3, atol=1e-3)


@snippet
def level_1():
    input_tensor, every = own(8, 16)
    weight_tensor = seeded(16, 12, seed=7)
    maco.init(backend="auto")

    @maco.optimize_comm
    def my_forward(x, weight):
        y = torch.matmul(x, weight)
        y = maco.allreduce(y)
        return y  # noqa: RET504

    output = my_forward(input_tensor, weight_tensor)
    close(output, sum(one @ weight_tensor for one in every))


@snippet
def level_2():
    x, every = own(8, 16)
    w1, w2 = seeded(16, 12, seed=7), seeded(16, 6, seed=8)
    ctx = maco.Context(
        world_size=maco.get_world_size(),
        compute_sms=96,
        comm_sms=32,
        overlap=True,
    )

    with ctx:
        y = ctx.compute(lambda: torch.matmul(x, w1))
        y_reduced = ctx.allreduce(y, async_op=True)
        z = ctx.compute(lambda: torch.matmul(x, w2))
        y_reduced.wait()
    close(y_reduced, sum(one @ w1 for one in every))
    close(z, x @ w2)
    close(y, x @ w1)


@snippet
def level_3():
    M, N = 8, 12
    num_steps = 3
    input_tensor, every = own(M, 16)
    input_tensor, every = input_tensor.bfloat16(), [one.bfloat16() for one in every]
    weight_tensor, second = seeded(16, N, seed=7).bfloat16(), seeded(N, 6, seed=8).bfloat16()
    kernel = maco.PersistentKernel(
        world_size=maco.get_world_size(),
        rank=maco.get_rank(),
        num_workers=96,
        num_local_schedulers=0,
        num_remote_schedulers=8,
    )

    x = kernel.register_tensor(input_tensor, name="input")
    w = kernel.register_tensor(weight_tensor, name="weight")
    w2 = kernel.register_tensor(second, name="w2")
    out = kernel.register_output(shape=(M, N), dtype=torch.bfloat16, name="output")

    with kernel.task_graph() as graph:
        y = graph.matmul(x, w, output=out)
        y_reduced = graph.allreduce(y)
        z = graph.matmul(y_reduced, w2)

    kernel.compile()
    for step in range(num_steps):  # noqa: B007
        kernel()
        torch.testing.assert_close(out, input_tensor @ weight_tensor, rtol=2e-2, atol=2e-2)
        input_tensor.add_(1)
    assert z is not None and step == 2 and len(every) == maco.get_world_size()


@snippet
def patterns():
    rank, world_size = maco.get_rank(), maco.get_world_size()
    x, every = own(2 * world_size, 3)
    y = maco.allreduce(x, op=maco.SUM)
    close(y, sum(every))
    gathered = maco.allgather(x)
    close(gathered, torch.stack(every))
    scattered = maco.reduce_scatter(x, op=maco.SUM)
    close(scattered, sum(every)[2 * rank : 2 * rank + 2])
    if world_size > 1:
        if rank == 0:
            maco.send(x, dst=1)
        if rank == 1:
            y = maco.recv(src=0, shape=x.shape, dtype=x.dtype)
            close(y, every[0])
    activation = x
    with maco.ring(direction="forward"):
        maco.send(activation, dst=(rank + 1) % world_size)
        recv_activation = maco.recv(src=(rank - 1) % world_size)
    close(recv_activation, every[(rank - 1) % world_size])


@snippet
def scheduling():
    q_proj, qs = own(4, 8, seed=1)
    k_proj, ks = own(4, 8, seed=2)
    v_proj, vs = own(4, 8, seed=3)
    attn_output, attns = own(4, 8, seed=4)
    scheduler = maco.CommScheduler(num_sms=32)
    phase1 = scheduler.phase("allreduce_qkv")
    handles = [phase1.allreduce(q_proj), phase1.allreduce(k_proj), phase1.allreduce(v_proj)]
    phase2 = scheduler.phase("allreduce_output", depends_on=phase1)
    handles.append(phase2.allreduce(attn_output))
    scheduler.compile()
    scheduler.run()
    for handle, every in zip(handles, (qs, ks, vs, attns), strict=True):
        close(handle.result(), sum(every))


@snippet
def automatic_overlap():
    matmul = torch.matmul
    x, every = own(8, 16)
    w1, w2 = seeded(16, 12, seed=7), seeded(16, 6, seed=8)
    with maco.auto_overlap():
        y1 = matmul(x, w1)
        y1_reduced = maco.allreduce(y1)
        y2 = matmul(x, w2)
        y2_reduced = maco.allreduce(y2)
    close(y1_reduced, sum(one @ w1 for one in every))
    close(y2_reduced, sum(one @ w2 for one in every))


@snippet
def manual_overlap():
    matmul = torch.matmul
    x, every = own(8, 16)
    w, prev_y = seeded(16, 12, seed=7), x
    with maco.overlap_region() as region:
        compute_future = region.submit_compute(matmul, x, w)
        comm_future = region.submit_comm(maco.allreduce, prev_y)

    y = compute_future.result()
    prev_y_reduced = comm_future.result()
    close(y, x @ w)
    close(prev_y_reduced, sum(every))


@snippet
def pipeline_overlap():
    input, every = own(6, 16)
    w1, w2 = seeded(16, 16, seed=7), seeded(16, 6, seed=8)

    def attention(x):
        return torch.softmax(x @ w1, -1)

    def ffn(x):
        return torch.relu(x @ w2)

    pipeline = maco.Pipeline(num_stages=3)

    @pipeline.stage(0)
    def stage_attention(x):
        return attention(x)

    @pipeline.stage(1)
    def stage_allreduce(x):
        return maco.allreduce(x)

    @pipeline.stage(2)
    def stage_ffn(x):
        return ffn(x)

    output = pipeline(input)
    close(output, ffn(sum(attention(one) for one in every)))


@snippet
def automatic_assignment():
    config = maco.auto_config(
        compute_intensity="high",
        comm_intensity="medium",
        gpu_arch="hopper",
    )
    assert (config.compute_sms, config.comm_sms) == (100, 32)


@snippet
def manual_assignment():
    sm_config = maco.SMConfig(total_sms=132)
    sm_config.assign_role(sm_range=(0, 96), role=maco.Role.COMPUTE, task_types=["matmul", "attention"])
    sm_config.assign_role(
        sm_range=(96, 120),
        role=maco.Role.LOCAL_SCHEDULER,
    )
    sm_config.assign_role(
        sm_range=(120, 132),
        role=maco.Role.REMOTE_SCHEDULER,
    )
    assert (sm_config.compute_sms, sm_config.comm_sms) == (96, 12)


is_prefill = True


@snippet
def dynamic_assignment():
    global is_prefill
    x, every = own(8, 16)
    weight = seeded(16, 12, seed=7)

    def model(x):
        return maco.allreduce(x @ weight)

    @maco.dynamic_sm_config
    def forward(x):
        if is_prefill:
            maco.set_config(compute_sms=116, comm_sms=12)
        else:
            maco.set_config(compute_sms=76, comm_sms=52)

        return model(x)

    for word in (True, False):
        is_prefill = word
        close(forward(x), sum(one @ weight for one in every))


@snippet
def decorators():
    import torch.distributed as dist

    @maco.optimize
    class MyModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2 = nn.Linear(16, 16), nn.Linear(16, 4)
            for i, one in enumerate(self.parameters()):
                one.data = seeded(*one.shape, seed=50 + i)

        def forward(self, x):
            y = self.linear1(x)
            dist.all_reduce(y)
            z = self.linear2(y)
            return z  # noqa: RET504

    input, every = own(8, 16)
    model = MyModel()
    want = model.linear2(sum(model.linear1(one) for one in every))
    with torch.no_grad():
        close(model(input), want)
        with maco.optimize_context():
            output = model(input)
        close(output, want)


@snippet
def monkey_patching():
    import torch.distributed as dist

    tensor, every = own(8, 16)
    tensor = tensor.clone()
    undo = maco.patch_torch_distributed()
    dist.all_reduce(tensor)
    undo()
    close(tensor, sum(every))


@snippet
def compile_mode():
    x, _ = own(8, 16)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    want = model(x)
    model = torch.compile(model, backend="maco")
    close(model(x), want)

    @torch.compile(backend="maco")
    def forward(x):
        return torch.relu(x) * 2

    close(forward(x), torch.relu(x) * 2)


@snippet
def tensor_parallel_linear():
    class TPLinear(maco.Module):
        """Tensor Parallel Linear with optimized communication"""

        def __init__(self, in_features, out_features, world_size):
            super().__init__()
            self.world_size = world_size
            self.weight = nn.Parameter(torch.randn(out_features, in_features // world_size))

        def forward(self, x):
            y = torch.matmul(x, self.weight.T)
            y = maco.allreduce(y, overlap_with_next=True)
            return y  # noqa: RET504

    world, rank = maco.get_world_size(), maco.get_rank()
    model = TPLinear(12 * world, 20, world_size=world)
    whole = seeded(20, 12 * world, seed=5)
    model.weight.data = whole[:, 12 * rank : 12 * rank + 12].contiguous()
    batches = [seeded(rows, 12 * world, seed=rows) for rows in (8, 8, 3)]
    dataloader = [one[:, 12 * rank : 12 * rank + 12] for one in batches]
    with maco.PersistentContext(model) as ctx:
        for i, batch in enumerate(dataloader):
            output = ctx.forward(batch)
            close(output, batches[i] @ whole.T)


@snippet
def transformer_layer():
    class OptimizedTransformerLayer(maco.Module):
        def __init__(self, config):
            self.config = config
            self.qkv_proj, self.o_proj = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
            self.ffn = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
            for i, one in enumerate(self.parameters()):
                one.data = seeded(*one.shape, seed=80 + i) / 4

        def attention(self, qkv, kv_cache):
            return torch.softmax(qkv, -1)

        def reference(self, x, total):
            attn_out = total(self.o_proj(self.attention(self.qkv_proj(x), None)))
            x = self.norm1(x + attn_out)
            return self.norm2(x + total(self.ffn(x)))

        @maco.task_graph
        def forward(self, x, kv_cache=None):
            qkv = self.qkv_proj(x)
            attn_out = self.attention(qkv, kv_cache)
            attn_out = self.o_proj(attn_out)
            attn_out = maco.allreduce(attn_out)
            x = x + attn_out
            x = self.norm1(x)
            ffn_out = self.ffn(x)
            ffn_out = maco.allreduce(ffn_out)
            x = x + ffn_out
            x = self.norm2(x)
            return x  # noqa: RET504

    class OptimizedTransformerModel(maco.Module):
        def __init__(self, config):
            self.layers = nn.ModuleList([OptimizedTransformerLayer(config) for _ in range(2)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    input_ids = seeded(4, 16, seed=9)
    model = OptimizedTransformerModel({"hidden": 16})
    compiled_model = maco.compile(model)
    with torch.no_grad():
        output = compiled_model(input_ids)
        want = input_ids
        for layer in model.layers:
            want = layer.reference(want, lambda one: one * maco.get_world_size())
    close(output, want)


@snippet
def configuration():
    before = maco.config.get("overlap_strategy")
    maco.config.set(
        backend="auto",
        sm_policy="auto",
        overlap_strategy="aggressive",
        comm_buffer_size="256MB",
        use_pinned_memory=True,
        debug=False,
        profile=False,
    )
    tensor, every = own(8, 16)
    work = maco.allreduce(
        tensor,
        op=maco.SUM,
        async_op=True,
        priority="high",
        overlap_group="attn",
        use_ring=False,
    )
    close(work.wait(), sum(every))
    maco.config.set(overlap_strategy=before, comm_buffer_size=None)


@snippet
def profiling():
    x, _ = own(8, 16)
    w = seeded(16, 16, seed=7)

    @maco.optimize
    def model(x):
        return torch.relu(maco.allreduce(x @ w))

    model(x)
    with maco.profiler() as prof:
        output = model(x)
    assert output.shape == (8, 16)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        prof.print_summary()
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("┌─") and "Operation" in lines[1] and lines[-1].startswith("Total overlap efficiency: ")
    assert len(prof.table) == len(lines) - 5
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "maco_trace.json")
        prof.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            assert json.load(file)


def on_ranks():
    import torch.distributed as dist

    torch.manual_seed(0)
    dist.init_process_group("gloo")
    for one in SNIPPETS:
        try:
            one()
        except Exception as error:
            raise AssertionError(f"the program '{one.__name__}'") from error
    dist.destroy_process_group()
    return len(SNIPPETS)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_programs(world):
    assert set(ranks.run(world, on_ranks, timeout=570, env={"MACO_CPU_SMS": "128"})) == {len(SNIPPETS)}
