#!/usr/bin/env python3
"""The programs of the API document with their tensors on GPUs: alone, or a rank a GPU by torchrun.

document_on_gpus.py [NAME ...]     all, or these; a line for each, and one that counts them
"""

import os
import sys
import time
import traceback

import test_api_document as document
import torch
import torch.distributed as dist


def main() -> int:
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(gpu)
    torch.set_default_device(gpu)
    torch.manual_seed(0)
    if alone:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=gpu)
    else:
        dist.init_process_group("nccl", device_id=gpu)
    rank, failed = dist.get_rank(), 0
    chosen = [one for one in document.SNIPPETS if one.__name__ in sys.argv[1:] or not sys.argv[1:]]
    for one in chosen:
        begin = time.perf_counter()
        try:
            one()
            torch.cuda.synchronize()
            said = "ok"
        except Exception:  # noqa: BLE001 - the others follow
            traceback.print_exc()
            said, failed = "failed", failed + 1
        if rank == 0:
            print(f"{one.__name__}: {said}, {time.perf_counter() - begin:.1f} s", flush=True)
    if rank == 0:
        print(f"{len(chosen) - failed} of {len(chosen)} programs on {dist.get_world_size()} GPU{'s' if not alone else ''}", flush=True)
    dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
