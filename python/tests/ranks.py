"""Runs a function on several ranks, a process each."""

import multiprocessing
import os
import queue
import socket
import time
import traceback


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _work(function, arguments, environment, results, rank):
    os.environ.update(environment)
    try:
        results.put((rank, True, function(*arguments)))
    except BaseException:  # noqa: BLE001 - for the one who waits
        results.put((rank, False, traceback.format_exc()))
    results.close()
    results.join_thread()


def run(world, function, *arguments, timeout=240, env=None, check=True):
    """What `function(*arguments)`, of a module that can be imported, gives on each of `world` ranks, by rank.

    Each rank is a process with RANK, WORLD_SIZE and the like in its environment. A rank that raises fails the test with its traceback;
    with `check=False` its traceback, a string, is its result.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    port = str(free_port())
    processes = []
    for rank in range(world):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "MACO_DEVICE": "cpu",
            "OMP_NUM_THREADS": "1",
            **(env or {}),
        }
        process = context.Process(target=_work, args=(function, arguments, environment, results, rank), daemon=True)
        process.start()
        processes.append(process)
    found = {}
    end = time.monotonic() + timeout
    try:
        while len(found) < world and time.monotonic() < end:
            try:
                rank, good, value = results.get(timeout=0.2)
            except queue.Empty:
                gone = [rank for rank, process in enumerate(processes) if rank not in found and process.exitcode not in (None, 0)]
                if gone and results.empty():
                    raise AssertionError(f"rank {gone[0]} ended with status {processes[gone[0]].exitcode}") from None
                continue
            if check and not good:
                raise AssertionError(f"rank {rank} of {world}:\n{value}")
            found[rank] = value
        missing = [rank for rank in range(world) if rank not in found]
        assert not missing, f"ranks {missing} of {world} gave nothing within {timeout} s"
        for process in processes:
            process.join(max(0.1, end - time.monotonic()))
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    return [found[rank] for rank in range(world)]
