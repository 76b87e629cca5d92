"""vLLM: a model of random weights, made here, generates a few tokens; needs no network."""

import json
import os

from checks import fact, fail, folder, module, skip

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "hidden_act": "silu",
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
    "num_hidden_layers": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "vocab_size": 1024,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}


def main():
    vllm = module("vllm")
    fact("version", vllm.__version__)
    platform = module("vllm.platforms").current_platform
    if not platform.is_cuda():
        skip("vLLM finds no CUDA here")
    fact("memory", platform.get_device_total_memory(), "about")
    made, model = folder()
    (model / "config.json").write_text(json.dumps(CONFIG))
    engine = vllm.LLM(model=str(model), load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
                      max_model_len=256, gpu_memory_utilization=0.5)
    wanted = vllm.SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, detokenize=False)
    answer = engine.generate([{"prompt_token_ids": [5, 6, 7]}], wanted)
    if len(answer[0].outputs[0].token_ids) != 8:
        fail("fewer tokens than were wanted")
    made.cleanup()


if __name__ == "__main__":  # its engine is a process of its own, which imports this file
    main()
