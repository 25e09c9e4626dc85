"""Tiny random checkpoints of every architecture that MACO imports, made by transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers

# Odd sizes, so that nothing is a multiple by accident; two heads of queries for each of keys.
SIZES: dict[str, Any] = {
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 500000.0,
}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.5, 2.5, 4.0],
    "original_max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
}
NEAR = "sliding_attention"
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 8}
MULTIPLIERS = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.5}
# Name -> class of its config, and what differs from SIZES.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True, "rope_parameters": LLAMA3, "head_dim": 16}),
    "llama-bias": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "llama-linear": ("LlamaConfig", {"rope_parameters": LINEAR, "num_key_value_heads": 4}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "mistral": ("MistralConfig", {"sliding_window": 11, "head_dim": 12}),
    "mistral-whole": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-bias": ("Qwen3Config", {"head_dim": 12, "attention_bias": True}),
    "phi3": ("Phi3Config", {"sliding_window": None}),
    "phi3-window": ("Phi3Config", {"sliding_window": 7, "hidden_size": 48}),
    "phi4-mini": ("Phi3Config", {"rope_parameters": LONG, "hidden_size": 32, "tie_word_embeddings": True, "sliding_window": None}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "num_hidden_layers": 4, "layer_types": [NEAR, NEAR, "full_attention", NEAR]}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", MULTIPLIERS),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1]}),
}


def make(name: str, folder: Path | str, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Any:
    """Saves the model `name` into `folder` and returns it, in f32 and for evaluation. Norm weights and biases, which start at ones and
    zeros and would hide faults, are random, too."""
    config_class, differs = MODELS[name]
    config = getattr(transformers, config_class)(**{**SIZES, **differs, **changes})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.3 + (0.0 if "bias" in key or "gemma" in name else 1.0))
            else:
                parameter.copy_(torch.randn_like(parameter) * (0.5 if "embed" in key else 1.5 / parameter.shape[-1] ** 0.5))
            parameter.copy_(parameter.to(dtype).float())
    copy.deepcopy(model).to(dtype).save_pretrained(folder)  # a conversion would round what isn't saved, too
    return model
