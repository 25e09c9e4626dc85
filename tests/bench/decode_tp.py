"""Decodes one token, batch 1, tensor-parallel over several GPUs: models of the shapes of Llama-3.2-1B and Qwen3-8B with random weights. The
peer in the same run is careful PyTorch: torch.compile, the whole step as one CUDA graph, sums by NCCL or by symmetric memory. The floor is
the weights of one rank at 4,540 GB/s."""
import comm_bench
import decode
import gpu_bench


def answer(job, rank, world):
    """Peers' microseconds a token."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    hidden, vocabulary = decode.MODELS[job["model"]][0], decode.MODELS[job["model"]][6]
    group = dist.group.WORLD.group_name
    shared = symmetric.empty(hidden, device="cuda", dtype=torch.bfloat16)
    symmetric.rendezvous(shared, dist.group.WORLD)
    all_logits = torch.empty(world, vocabulary // world, device="cuda", dtype=torch.bfloat16)

    def by_nccl(x):
        dist.all_reduce(x)
        return x

    def by_symmetric(x):
        shared.copy_(x.view(-1))
        return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group).view(x.shape)

    def gathered(x):
        dist.all_gather_into_tensor(all_logits, x)
        return all_logits.view(1, -1)

    found = {}
    for name, summed in (("nccl_us", by_nccl), ("symmetric_us", by_symmetric)):
        step = decode.peer_step(job["model"], job["capacity"], job["position"], world, summed, gathered)
        found[name] = comm_bench.graph_us(step, 1, job["launches"])
        del step
        torch.cuda.empty_cache()
    return found


def main():
    parser = comm_bench.arguments(__doc__, default_gpus="2")
    parser.add_argument("--model", action="append", choices=list(decode.MODELS), help="default: all")
    parser.add_argument("--capacity", type=int, default=1024, help="rows of the caches")
    parser.add_argument("--position", type=int, default=512, help="rows that are there before the token")
    args = parser.parse_args()
    if args.peer_jobs:
        return comm_bench.serve_peers(args, answer)
    bench = gpu_bench.Bench(args)
    args.options, args.profiles = "", None
    for world in map(int, args.gpus.split(",")):
        models = args.model or list(decode.MODELS)
        jobs = [{"model": m, "capacity": args.capacity, "position": args.position, "launches": args.launches} for m in models]
        peers = {} if args.no_peers else {p["model"]: p for p in comm_bench.ask_peers(__file__, world, jobs)}
        for model in models:
            ours = bench.maco(model, decode.graph(model, args.capacity, world), "--scalar", f"pos={args.position}")
            theirs = peers.get(model, {})
            bench.add(gpus=world, model=model, position=args.position, maco_us=ours,
                      peer_us=min((theirs[k] for k in ("nccl_us", "symmetric_us") if theirs.get(k)), default=None),
                      nccl_us=theirs.get("nccl_us"), symmetric_us=theirs.get("symmetric_us"),
                      floor_us=round(decode.weight_bytes(model, world) / 4.54e6, 1))
    bench.finish()


if __name__ == "__main__":
    main()
