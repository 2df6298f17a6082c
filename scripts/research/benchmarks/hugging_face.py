"""Training steps of a BERT encoder with PyTorch and Hugging Face's transformers, in a process of their own.

The process trains as Hugging Face's Trainer does with dynamic padding: examples are tokenized in advance, in
a random order, and each batch is padded to its longest. It takes some steps for each line of its standard
input and answers with a line. It imports nothing of ours: TensorFlow and PyTorch fail in one process.
"""

import argparse
import importlib
import sys


def main() -> None:
    torch, transformers, np = map(importlib.import_module, ("torch", "transformers", "numpy"))
    parser = argparse.ArgumentParser()
    parser.add_argument("encoder")
    parser.add_argument("examples")
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--learning_rate", type=float)
    parser.add_argument("--weight_decay", type=float)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    with np.load(args.examples) as file:
        ids, mask, labels = (
            torch.tensor(file[name], dtype=torch.int64) for name in ("ids", "mask", "labels")
        )
    torch.manual_seed(0)
    encoder = transformers.AutoModel.from_pretrained(args.encoder, add_pooling_layer=False).train()
    head = torch.nn.Linear(encoder.config.hidden_size, int(labels.max()) + 1)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=args.learning_rate, weight_decay=args.weight_decay)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    for _ in sys.stdin:
        for batch in torch.randperm(len(labels))[: args.steps * args.batch_size].split(args.batch_size):
            length = int(mask[batch].sum(dim=1).max())
            of_batch = mask[batch, :length]
            states = encoder(ids[batch, :length], attention_mask=of_batch).last_hidden_state
            vectors = (states * of_batch[..., None]).sum(dim=1) / of_batch.sum(dim=1, keepdim=True)
            torch.nn.functional.cross_entropy(head(vectors), labels[batch]).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print("done", flush=True)


if __name__ == "__main__":
    main()
