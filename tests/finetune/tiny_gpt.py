"""A GPT-2 of two layers over ten words, saved to disk: nothing is downloaded."""

from pathlib import Path

WORDS = ["a", "b", "c", "d", "e", "f", "g", "bad"]
EOS, PAD = "<eos>", "<pad>"


def save(folder: Path, kind: str = "GPT2LMHeadModel") -> str:
    """Write model and tokenizer; return the path for `from_pretrained`."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([EOS, PAD, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=EOS, pad_token=PAD, padding_side="left"
    )
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
    )
    config.num_labels = 1  # of a cost model
    getattr(transformers, kind)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def prompts(count: int = 16):
    """Prompts of one word."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": WORDS[i % 4]} for i in range(count)])


def count_a(completions, **_):
    """Reward: how often the word a comes up."""
    return [float(text.split().count("a")) for text in completions]


def bad_words(completions, **_):
    """Cost: how often the bad word comes up."""
    return [float(text.split().count("bad")) for text in completions]
