from rank4class.pipelines.sweep import search_report


def trial(number, choice, values, state="complete", best=False):
    mean = sum(values) / len(values) if state != "diverged" else None
    return {"number": number, "choice": choice, "values": values, "mean": mean, "state": state, "best": best}


NOTE = "loss.temperature=1 is at the low end of the values tried: try values beyond it"
SEARCH = {
    "sampler": "grid",
    "monitor": "ndcg@5",
    "seeds": [10000, 10001],
    "fields": {"optimizer.learning_rate": "0.001, 0.01, 0.1", "loss.temperature": "1, 2"},
    "widen": 1,
    "added": [
        {"field": "optimizer.learning_rate", "value": 0.1, "end": "high", "cells": ["softmax-dot", "mse-dot"]}
    ],
    "fixed": {"list_mle-dot": {}},
    "cells": [
        {
            "cell": "softmax-dot",
            "trials": [
                trial(0, {"optimizer.learning_rate": 0.01, "loss.temperature": 1.0}, [90.0, 91.0], best=True),
                trial(1, {"optimizer.learning_rate": 0.1, "loss.temperature": 2.0}, [80.5, 80.0]),
                trial(2, {"optimizer.learning_rate": 0.1, "loss.temperature": 1.0}, [85.0], "diverged"),
            ],
            "runs": 6,
            "notes": [NOTE],
        },
        {
            "cell": "mse-dot",
            "trials": [trial(0, {"optimizer.learning_rate": 0.1}, [70.0, 71.0], best=True)],
            "runs": 2,
            "notes": [],
        },
    ],
}


def rows(block):
    """Returns the cells of a table in Markdown without the line below its header."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return [lines[0], *lines[2:]]


def test_blocks_by_hand():
    title, text, values, budget, _, trials = search_report.search_blocks(SEARCH)
    assert title == "## Search"
    assert text.startswith(
        "All combinations of the values, each trained with the seeds 10000, 10001, which no final run has. "
        "The value of a trial is the mean of the best validation ndcg@5 of the seeds. Diverged "
    )
    assert values.splitlines() == [
        "- optimizer.learning_rate: 0.001, 0.01, 0.1",
        "- loss.temperature: 1, 2",
        "- optimizer.learning_rate=0.1 was added for all cells, as the best value of softmax-dot, mse-dot "
        "was at the high end.",
        f"- softmax-dot: {NOTE}.",
        "- list_mle-dot has one choice: nothing to search.",
    ]
    assert rows(budget) == [
        ["cell", "trials", "runs", "diverged", "best choice", "mean ndcg@5"],
        ["softmax-dot", "3", "6", "1", "optimizer.learning_rate=0.01, loss.temperature=1", "90.50"],
        ["mse-dot", "1", "2", "0", "optimizer.learning_rate=0.1", "70.50"],
    ]
    fields = ["optimizer.learning_rate", "loss.temperature"]
    assert rows(trials) == [
        ["cell", "trial", *fields, "seed 10000", "seed 10001", "mean", "state"],
        ["softmax-dot", "0", "0.01", "1", "90.00", "91.00", "90.50", "best"],
        ["softmax-dot", "1", "0.1", "2", "80.50", "80.00", "80.25", "complete"],
        ["softmax-dot", "2", "0.1", "1", "85.00", "-", "-", "diverged"],
        ["mse-dot", "0", "0.1", "-", "70.00", "71.00", "70.50", "best"],
    ]


def test_a_search_by_tpe():
    blocks = search_report.search_blocks({**SEARCH, "sampler": "tpe"})
    assert blocks[1].startswith("Choices proposed by TPE, each trained with the seeds")
