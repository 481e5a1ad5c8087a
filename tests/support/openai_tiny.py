"""A real OpenAI-compatible server for tests: `transformers serve` with a random language model of two small layers.

Runs in the environment `transformers` of `venvs`, never in the tests' own. The model and its tokenizer are made here: nothing
is loaded from anywhere. It says on standard output when it generates and when a caller's leaving stopped it, which the server
itself keeps to itself.

Usage: ``PYTHON openai_tiny.py FOLDER PORT``
"""

import os
import sys
from pathlib import Path

os.environ.update(
    OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false"
)

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GenerationMixin, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.cli.serving.utils import DirectStreamer
from transformers.cli.transformers import main

MODEL = "tiny-chat"
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_model(folder: Path) -> None:
    """One token for each ASCII letter, and weights that mean nothing but are the same every time."""
    # Bytes beyond ASCII would be halves of characters, which a stream and a whole answer tell differently.
    letters = [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter < "\x7f" or letter in "ĠĊ"]
    tokenizer = Tokenizer(
        BPE(vocab={"<end>": 0} | {letter: place for place, letter in enumerate(letters, 1)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(letters) + 1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=65536,
        bos_token_id=None,
        eos_token_id=None,  # it never ends by itself, so how long a call takes is the test's choice
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def say(word: str, function):
    """The function, which first says a word."""

    def saying(*args, **kwargs):
        print(word, flush=True)
        return function(*args, **kwargs)

    return saying


if __name__ == "__main__":
    home, port = Path(sys.argv[1]), sys.argv[2]
    make_model(home / MODEL)
    os.chdir(home)
    GenerationMixin.generate = say("generating", GenerationMixin.generate)
    DirectStreamer.cancel = say("stopped", DirectStreamer.cancel)
    sys.argv = ["transformers", "serve", MODEL, "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    main()
