r"""Trains SetFit on few comments of GoEmotions, beside which class texts are judged.

    python -m rank4class.scripts.research.setfit_peer --path=FOLDER --encoder=MINILM --examples=224

The recipe is that of its paper (Tunstall et al. 2022, "Efficient few-shot learning without prompts"): pairs
of comments, `--iterations` alike and as many different for each, train the encoder for an epoch of batches of
16; a logistic regression ranks the classes. It needs the package setfit, and no triton in the environment:
beside TensorFlow that ends in a segmentation fault.
"""

import importlib

import numpy as np
from absl import flags

from rank4class.scripts import cli

_PATH = flags.DEFINE_string("path", None, "Folder of the published files of GoEmotions.", required=True)
_ENCODER = flags.DEFINE_string(
    "encoder", None, "Folder of MiniLM, as Sentence Transformers saves it.", required=True
)
_EXAMPLES = flags.DEFINE_integer("examples", 224, "Comments to train on, those of data.max_train_examples.")
_ITERATIONS = flags.DEFINE_integer("iterations", 20, "Pairs alike, and pairs different, of each comment.")
_SEEDS = flags.DEFINE_multi_integer("seed", [0, 1, 2, 3, 4], "Seeds of the pairs and of the training.")


def main() -> None:
    setfit = importlib.import_module("setfit")
    datasets = importlib.import_module("datasets")

    from rank4class.data.datasets import goemotions
    from rank4class.losses import metrics
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.task_data import split_steps

    dataset = goemotions.goemotions(_PATH.value)
    train = split_steps.subsample(dataset.splits["train"], _EXAMPLES.value, seed=0)
    test = dataset.splits["test"]
    comments = datasets.Dataset.from_dict(
        {"text": train.features["text"].tolist(), "label": train.labels.tolist()}
    )
    lines = [["seed", "top-1 error", "top-5 error", "NDCG@5"]]
    values = []
    for seed in _SEEDS.value:
        model = setfit.SetFitModel.from_pretrained(_ENCODER.value)
        arguments = setfit.TrainingArguments(
            batch_size=16,
            num_epochs=1,
            num_iterations=_ITERATIONS.value,
            seed=seed,
            report_to="none",
            save_strategy="no",
        )
        setfit.Trainer(model=model, args=arguments, train_dataset=comments).train()
        # Classes without an example stay at 0.
        scores = np.zeros([len(test), len(dataset.class_names)], np.float32)
        found = model.predict_proba(test.features["text"].tolist(), as_numpy=True)
        scores[:, model.model_head.classes_] = found
        of_seed = [
            metrics.top_k_error(scores, test.labels, k=1),
            metrics.top_k_error(scores, test.labels, k=5),
            metrics.ndcg(scores, test.labels, k=5),
        ]
        values.append([100.0 * float(np.mean(column)) for column in of_seed])
        lines.append([str(seed), *(f"{value:.2f}" for value in values[-1])])
    lines.append(["mean", *(f"{value:.2f}" for value in np.mean(values, axis=0))])
    print(tables.text_table(lines))


if __name__ == "__main__":
    cli.run(main)
