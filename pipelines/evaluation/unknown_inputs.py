"""Detection of unknown inputs, examples of classes that the training left out, by the scores of the others.

References:
  Hendrycks, Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution examples in neural
  networks".
  Liu, Wang, Owens, Li (2020), "Energy-based out-of-distribution detection", eq. 4.
"""

from typing import Any

import numpy as np
import scipy.special

from rank4class.pipelines.evaluation import statistics


def evaluate(known: np.ndarray, unknown: np.ndarray, temperature: float = 1.0) -> dict[str, Any]:
    r"""Returns the AUROC of telling unknown from known examples, from their finite scores `[N, n]`.

    It is the probability that of an unknown and a known example the unknown one has the lower maximum
    probability, $\max_i \mathrm{softmax}(s / T)_i$, or the higher energy,
    $-T \log \sum_i \exp(s_i / T)$. Ties count a half.

    Returns:
      "known" and "unknown", numbers of examples; "temperature"; "maximum_probability" and "energy", AUROCs in
      percent; "intervals", name -> [low, high] by a bootstrap of all examples, or None if they are separated.
    """
    scaled = np.concatenate([known, unknown]).astype(np.float64) / temperature
    is_unknown = np.repeat([0.0, 1.0], [len(known), len(unknown)])
    measures = {
        "maximum_probability": -scipy.special.softmax(scaled, axis=1).max(axis=1),
        "energy": -temperature * scipy.special.logsumexp(scaled, axis=1),
    }
    results = {name: statistics.by_value(auroc, each, is_unknown) for name, each in measures.items()}
    return {
        "known": len(known),
        "unknown": len(unknown),
        "temperature": temperature,
        **{name: auroc for name, (auroc, _) in results.items()},
        "intervals": {name: interval for name, (_, interval) in results.items()},
    }


def auroc(counts: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Returns the area in percent, NaN for a resample without known or unknown examples; see `by_value`."""
    known = counts - unknown
    pairs = unknown * (known.cumsum(axis=1) - known / 2)
    with np.errstate(invalid="ignore"):
        return 100.0 * pairs.sum(axis=1) / (known.sum(axis=1) * unknown.sum(axis=1))
