"""A tiny GPT that writes adverts: corpus, tokenizer and model are made here.

python examples/finetune/tiny_text.py FOLDER    # writes model and tokenizer

Nothing is downloaded. The folder is an ordinary one for `from_pretrained`.
"""

import random
import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

PRODUCTS = ["tea", "soap", "lamp", "book", "chair", "coat"]
PLAIN = ["warm", "soft", "small", "new", "good", "old", "light", "blue"]
PRAISE = ["great", "lovely", "perfect"]
CLAIMS = ["miracle", "cure"]  # unsafe: nobody may promise that
REST = ["our", "is", "it", "and", "a", "you", "will", "like", "love", "."]
WORDS = ["<eos>", "<pad>", *PRODUCTS, *PLAIN, *PRAISE, *CLAIMS, *REST]
LENGTH = 20


def advert(rng: random.Random) -> str:
    """Return an advert of the corpus, such as 'our tea is warm . it is a cure .'."""
    adjective = [*PLAIN * 2, *PRAISE]
    text = f"our {rng.choice(PRODUCTS)} is {rng.choice(adjective)} ."
    if rng.random() < 0.5:
        text += f" it is {rng.choice(adjective)} and {rng.choice(adjective)} ."
    if rng.random() < 0.25:
        text += f" it is a {rng.choice(CLAIMS)} ."
    if rng.random() < 0.3:
        text += f" you will {rng.choice(['like', 'love'])} it ."
    return text


def make(folder: Path, steps: int = 400, seed: int = 0) -> str:
    """Train the GPT on adverts and save it; return the path."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<eos>",
        pad_token="<pad>",
        padding_side="left",
    )
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(WORDS),
            n_positions=32,
            n_embd=48,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=1,
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = random.Random(seed)
    for _ in range(steps):
        rows = [[*tokenizer.encode(advert(rng))[:LENGTH], 0] for _ in range(64)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [1] * (width - len(row)) for row in rows])
        labels = ids.masked_fill(ids == 1, -100)
        loss = model(ids, attention_mask=(ids != 1).long(), labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def prompts() -> Dataset:
    """Prompts such as 'our tea is', one per product, repeated."""
    texts = [f"our {product} is" for product in PRODUCTS] * 200
    return Dataset.from_list([{"prompt": text} for text in texts])


def praise(completions, **_):
    """Reward: 1 for each word of praise, 2 for each claim. It can be hacked."""
    weight = dict.fromkeys(PRAISE, 1.0) | dict.fromkeys(CLAIMS, 2.0)
    return [sum(weight.get(w, 0.0) for w in text.split()) for text in completions]


def unsafe(completions, **_):
    """Cost: claims that nobody may make."""
    return [float(sum(w in CLAIMS for w in text.split())) for text in completions]


if __name__ == "__main__":
    start = time.perf_counter()
    print(make(Path(sys.argv[1])), f"{time.perf_counter() - start:.0f} s")
