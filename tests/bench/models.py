"""A token of models at their real sizes, imported from checkpoints that are headers only (sparse files; weights are random numbers then),
beside the time that the memory takes for the weights at 4,540 GB/s. `--report` compiles them only, and says what isn't fused: for that no
GPU is needed. Configurations are those of the models' own config.json, the architectures' classes transformers'."""
import json
import os
import re
import struct
import subprocess
import tempfile

import gpu_bench

RATE = 4.54e6  # bytes a microsecond
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def shape(layers, hidden, inner, heads, kv_heads, vocabulary, **more):
    return {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "max_position_embeddings": 131072, **more}


LONG = {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48, "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
MODELS = {
    "llama-3.2-1b": ("LlamaConfig", shape(16, 2048, 8192, 32, 8, 128256, head_dim=64, tie_word_embeddings=True, rms_norm_eps=1e-5,
                                          rope_parameters={**LLAMA3, "factor": 32.0, "rope_theta": 5e5})),
    "llama-3.2-3b": ("LlamaConfig", shape(28, 3072, 8192, 24, 8, 128256, head_dim=128, tie_word_embeddings=True, rms_norm_eps=1e-5,
                                          rope_parameters={**LLAMA3, "factor": 32.0, "rope_theta": 5e5})),
    "llama-3.1-8b": ("LlamaConfig", shape(32, 4096, 14336, 32, 8, 128256, rms_norm_eps=1e-5,
                                          rope_parameters={**LLAMA3, "rope_theta": 5e5})),
    "mistral-7b": ("MistralConfig", shape(32, 4096, 14336, 32, 8, 32000, sliding_window=4096, rms_norm_eps=1e-5)),
    "qwen2.5-7b": ("Qwen2Config", shape(28, 3584, 18944, 28, 4, 152064)),
    "qwen3-4b": ("Qwen3Config", shape(36, 2560, 9728, 32, 8, 151936, head_dim=128, tie_word_embeddings=True)),
    "qwen3-8b": ("Qwen3Config", shape(36, 4096, 12288, 32, 8, 151936, head_dim=128)),
    "phi-4": ("Phi3Config", shape(40, 5120, 17920, 40, 10, 100352, max_position_embeddings=16384)),
    "phi-4-mini": ("Phi3Config", shape(32, 3072, 8192, 24, 8, 200064, tie_word_embeddings=True, rope_parameters=LONG)),
    "gemma-2-9b": ("Gemma2Config", shape(42, 3584, 14336, 16, 8, 256000, head_dim=256)),
    "gemma-3-4b": ("Gemma3TextConfig", shape(34, 2560, 10240, 8, 4, 262208, head_dim=256, sliding_window=1024)),
    "gemma-3-12b": ("Gemma3TextConfig", shape(48, 3840, 15360, 16, 8, 262208, head_dim=256, sliding_window=1024)),
    "olmo-2-7b": ("Olmo2Config", shape(32, 4096, 11008, 32, 32, 100352)),
    "granite-3.1-8b": ("GraniteConfig", shape(40, 4096, 12800, 32, 8, 49155, tie_word_embeddings=True, embedding_multiplier=12.0,
                                              attention_multiplier=0.0078125, residual_multiplier=0.22, logits_scaling=16.0)),
    "smollm3-3b": ("SmolLM3Config", shape(36, 2048, 11008, 16, 4, 128256, tie_word_embeddings=True)),
}


def save_header(name, folder, **changes):
    """The checkpoint without its bytes."""
    import torch
    import transformers
    kind, config = MODELS[name]
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, kind)(**{**config, **ids, **changes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    config.architectures = [type(model).__name__]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    header, at = {}, 0
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        header[key] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + 2 * tensor.numel()]}
        at += 2 * tensor.numel()
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + at)


def imported(binaries, name, folder, world, rows, **changes):
    """The folder with its graphs."""
    checkpoint, graphs = os.path.join(folder, name), os.path.join(folder, f"{name}-{world}")
    os.makedirs(checkpoint, exist_ok=True)
    save_header(name, checkpoint, **changes)
    sizes = ["--tp", str(world), "--max-seq", str(rows)]
    subprocess.run([os.path.join(binaries, "macoc"), "import", checkpoint, *sizes, "-o", graphs], check=True)
    return graphs


def bytes_read(graphs, position):
    """Bytes that one token reads on one rank: all params, but of the table of embeddings only what the head reads, and the caches' rows."""
    with open(os.path.join(graphs, "weights.json")) as file:
        about = json.load(file)
    sizes = {name: 2 * (param["shape"][0] * (param["shape"][1:] or [1])[0]) for name, param in about["params"].items()}
    if "head" in sizes:
        sizes.pop("embedded")
    with open(os.path.join(graphs, "decode.maco")) as file:
        text = file.read()
    for times, body in re.findall(r"repeat \w+ in 0\.\.(\d+) \{\n(.*?)\n  \}", text, re.S):
        text += (body + "\n") * (int(times) - 1)
    columns = [int(n) for n in re.findall(r"state \S+ : \w+\[\d+, (\d+)\]", text)]
    return sum(sizes.values()) + 2 * position * sum(columns)


def main():
    parser = gpu_bench.arguments(__doc__)
    parser.add_argument("--model", action="append", choices=list(MODELS), help="default: all")
    parser.add_argument("--tp", default="1", help="ranks: 1,2")
    parser.add_argument("--rows", type=int, default=4096, help="of the caches")
    parser.add_argument("--position", type=int, default=512, help="rows that are there before the token")
    parser.add_argument("--report", action="store_true", help="compile them only, and print what stays by itself")
    parser.add_argument("--kind", default="decode", choices=["decode", "prefill", "verify"])
    parser.add_argument("--check", action="store_true", help="first 2 layers at full width against the reference")
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    for world in map(int, args.tp.split(",")):
        for name in args.model or MODELS:
            with tempfile.TemporaryDirectory() as folder:
                changes = {"num_hidden_layers": 2} if args.check else {}
                graphs = imported(args.bin, name, folder, world, args.rows, **changes)
                path = os.path.join(graphs, args.kind + ".maco")
                if args.report:
                    done = subprocess.run([os.path.join(args.bin, "macoc"), path, "--report", "-o", os.path.join(folder, "kernel.cu")],
                                          capture_output=True, text=True)
                    print(f"{name}, {world} rank{'s' * (world > 1)}:\n{done.stderr}", flush=True)
                    continue
                options = ["--check"] if args.check else []
                if args.kind == "decode":
                    options += ["--scalar", f"pos={args.position}"]
                with open(path) as file:
                    us = bench.maco(f"{name}-{world}", file.read(), *options)
                floor = bytes_read(graphs, args.position) / RATE
                bench.add(gpus=world, model=name, position=args.position, maco_us=us, memory_us=round(floor, 1),
                          of_rate=round(floor / us, 3) if us else None)
    bench.finish()


if __name__ == "__main__":
    main()
