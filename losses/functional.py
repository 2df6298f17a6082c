"""The ranking losses as pure functions: `loss(scores, labels, *, where=None, weights=None, ...)`.

The last axis of `scores` holds the classes. `labels` is either one integer class id an instance,
shape `[...]`, or dense, shape `[..., n]` (one-hot, multi-label or graded gains). Both give the same
value for the same problem, and every function returns one value an instance, float32 `[...]`.

Class ids take an exact form of `O(n)` time and memory, the gradient included; dense labels take what
`listwise.py` says. Some losses have no form of their own for class ids (`sparsemax`, those that draw
an order, and those with several scores a class) and see them as one-hot labels.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, finite; computed in float32. A class is left
    out by `where`, not by a score of minus infinity.
  labels: integer `[...]` in `0..n-1`, or numeric `[..., n]`, finite and not negative.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part. A masked list has
    the loss of the list without its masked classes; where no relevant class is left, a ranking
    loss is 0. (`mse`, `rescaled_mse`, `pairwise_mse`, `sigmoid_cross_entropy`, `ordinal` and
    `click_em` keep what the irrelevant classes cost, `calibrated_softmax` what its virtual one does.)
  weights: optional, broadcastable to `[...]`; multiplies each instance's loss.

Common errors:
  ValueError: shapes or dtypes do not fit, an argument is no dense tensor of numbers, a knob has no meaning,
    or (in eager mode) a label is outside the classes or no gain. A compiled function cannot raise: there such
    an instance has the loss NaN.

Ragged lists, which TF-Ranking takes with `ragged=True`, are made dense first: `scores.to_tensor()`,
`labels.to_tensor()` and `where=tf.sequence_mask(labels.row_lengths())`.
"""

import functools
import inspect
import numbers

import tensorflow as tf

from rank4class.losses import gumbel as gumbel_noise
from rank4class.losses import (
    label_checks,
    lambda_weights,
    listwise,
    multiclass,
    projections,
    ranks,
    relevant,
)

NORMALIZERS = ("list", "pairs", "none")


def softmax(scores, labels, *, where=None, weights=None, temperature=1.0):
    r"""Softmax cross entropy.

    $$\ell = \log \sum_j e^{m_j / \tau}, \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights: see the module. Dense labels sum over the relevant classes,
        each times its label.
      temperature: `tau > 0`.

    Returns:
      float32 `[...]`, at least 0.

    >>> softmax([[0., 0., 0., 0.]], [2]).numpy().round(4)  # log 4
    array([1.3863], dtype=float32)

    References:
      Rank4Class, section 4.1.
    """
    forms = (multiclass.softmax, listwise.softmax)
    return _evaluate(forms, scores, labels, where, weights, temperature=temperature)


def rankmax(scores, labels, *, where=None, weights=None, temperature=1.0, k=1, max_relevant=None):
    r"""Rankmax cross entropy: the true class against those that come within a margin of it.

    $$\ell = -\log \min(1, \alpha_y (s_y - \mu_y)), \quad \mu_y = \min(s_y, s_{[k]}) - 1$$

    with the `alpha` under which the shares of all classes, between 0 and 1, sum to `k`
    (`projections.rankmax`). For `k = 1` it is, with margins `m_j = s_j - s_y`,

    $$\ell = \log \sum_j \max(0, 1 + m_j)$$

    Args:
      scores, labels, where, weights: see the module. Dense labels sum over the relevant classes, each times
        its label; all together take `O(n log m)`, `m` the `max_relevant`.
      temperature: `tau > 0`; divides the scores.
      k: how many classes are selected; class ids take `O(n log k)`. A masked list of no more than `k`
        classes has the loss 0.
      max_relevant: how many classes are relevant in a list of dense labels at most; None is all `n`. The
        smaller, the faster.

    Returns:
      float32 `[...]`, at least 0; 0 where the true class is first by a margin of 1, or held at 1.

    Raises:
      ValueError: `k` is outside `1..n`, or (in eager mode, else the loss is NaN) a list has more than
        `max_relevant` relevant classes.

    >>> rankmax([[2.0, 1.5, 0.0]], [1]).numpy().round(4)  # log 2.5
    array([0.9163], dtype=float32)

    References:
      Kong, Krichene, Mayoraz, Rendle, Zhang (2020), "Rankmax: an adaptive projection alternative to the
      softmax function", eq. 14.
    """
    projections.check_k(k, ranks.dense("scores", scores).shape[-1])
    forms = (multiclass.rankmax, listwise.rankmax)
    knobs = {"temperature": temperature, "k": k, "max_relevant": max_relevant}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def sparsemax(scores, labels, *, where=None, weights=None, temperature=1.0):
    r"""Sparsemax loss: the Fenchel-Young loss of the Euclidean projection `p` on the simplex.

    $$\ell = \sum_j p_j m_j + \tfrac{1}{2} (1 - \lVert p \rVert^2), \quad m_j = s_j - s_y$$

    Its gradient is `p - e_y`, and it is 0 where the true class is first by a margin of 1. `O(n)` a step of
    the projection's search.

    Args:
      scores, labels, where, weights: see the module. Dense labels sum over the relevant classes, each times
        its label.
      temperature: `tau > 0`; divides the scores.

    Returns:
      float32 `[...]`, at least 0.

    >>> sparsemax([[2.0, 1.5, 0.0]], [1]).numpy()  # p is (0.75, 0.25, 0)
    array([0.5625], dtype=float32)

    References:
      Martins, Astudillo (2016), "From softmax to sparsemax: a sparse model of attention and multi-label
      classification", section 4; Blondel, Martins, Niculae (2020), "Learning with Fenchel-Young losses".
    """
    return _evaluate((None, listwise.sparsemax), scores, labels, where, weights, temperature=temperature)


def warp(scores, labels, *, where=None, weights=None, temperature=1.0, max_relevant=None):
    r"""WARP: hinge loss of the classes within a margin, weighted by how many they are.

    $$\ell = \frac{1}{v} \sum_{i=1}^{v} \frac{1}{i} \sum_{j \ne y} \max(0, 1 + m_j), \quad
    v = |\{j \ne y : m_j > -1\}|$$

    The weight lets no gradient through.

    Args:
      scores, labels, where, weights: see the module. Dense labels sum over the relevant classes, each times
        its label, against the irrelevant ones: `O(n log m)`, `m` the `max_relevant`.
      temperature: `tau > 0`; divides the scores.
      max_relevant: see `rankmax`.

    Returns:
      float32 `[...]`, at least 0.

    >>> warp([[2.0, 1.5, 0.0]], [1]).numpy().round(4)
    array([1.5], dtype=float32)

    References:
      Weston, Bengio, Usunier (2011), "Wsabie: scaling up to large vocabulary image annotation"; Rankmax,
      section 3.3, which counts the true class among the `v`.
    """
    forms = (multiclass.warp, listwise.warp)
    knobs = {"temperature": temperature, "max_relevant": max_relevant}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def n_choose_k(scores, labels, *, where=None, weights=None, temperature=1.0, levels=2):
    r"""Negative log-likelihood of the relevant classes among all sets of as many (n-choose-k).

    $$\ell = \log Z_k(s) - \sum_{t_j = 1} s_j, \quad Z_k(s) = \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

    with `k` the number of relevant classes, which is taken as known: how likely a count is, is another
    model's matter. Graded labels are levels, of which the highest chooses its classes first and each other
    among those that are left: `L - 1` such terms. One class a level makes it the Plackett-Luce model of
    `list_mle`, one relevant class softmax.

    Args:
      scores, labels, where, weights: see the module. Dense labels are whole numbers in `0..levels - 1`:
        `O(L n)`. Not every level needs a class; a list without a relevant one has the loss 0.
      temperature: `tau > 0`; divides the scores.
      levels: `L`, at least 2.

    Returns:
      float32 `[...]`, at least 0.

    Raises:
      ValueError: a dense label is no whole number in `0..levels - 1` (in eager mode, else the loss is NaN).

    >>> n_choose_k([[0.0, 0.0, 0.0, 0.0]], [[1.0, 1.0, 0.0, 0.0]]).numpy().round(4)  # log 6
    array([1.7918], dtype=float32)
    >>> n_choose_k([[0.0, 0.0, 0.0]], [[2.0, 1.0, 0.0]], levels=3).numpy().round(4)  # log 3 + log 2
    array([1.7918], dtype=float32)

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
      ranking", eq. 4 and 6.
    """
    ranks.check_count("levels", levels, least=2)
    forms = (multiclass.n_choose_k, listwise.n_choose_k)
    knobs = {"temperature": temperature, "levels": levels}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def top_k_gain(scores, labels, *, where=None, weights=None, temperature=1.0, k=1):
    r"""Negative logarithm of how likely the true class is among `K` that are chosen.

    $$\ell = -\log \frac{\sum_j t_j \pi_j}{\sum_{j \le K} t_{[j]}}, \quad \pi_j = p(j \in c \mid K)$$

    under the n-choose-k model (`n_choose_k.marginals`), over what the `K` highest labels give. Of one
    relevant class it is the probability that it is chosen, of several the expected precision; `K = 1` is
    softmax.

    Args:
      scores, labels, where, weights: see the module. `O(n)`. Of dense labels the gain is taken as at least
        1e-24: where the scores rule all relevant classes out, by gaps beyond 50, there is no gradient. They
        have a first derivative, class ids a second too.
      temperature: `tau > 0`; divides the scores.
      k: how many classes are chosen. A masked list of no more than `k` classes has the loss 0.

    Returns:
      float32 `[...]`, at least 0.

    Raises:
      ValueError: `k` is outside `1..n`.

    >>> top_k_gain([[0.0, 0.0, 0.0, 0.0]], [2], k=3).numpy().round(4)  # -log 3/4
    array([0.2877], dtype=float32)

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), eq. 8.
    """
    projections.check_k(k, ranks.dense("scores", scores).shape[-1])
    forms = (multiclass.top_k_gain, listwise.top_k_gain)
    return _evaluate(forms, scores, labels, where, weights, temperature=temperature, k=k)


def calibrated_softmax(scores, labels, *, where=None, weights=None, temperature=1.0, virtual_label=0.0):
    r"""Softmax cross entropy with one more class, of score 0: scores become log odds against it.

    $$\ell = (1 + v) \log \Big(1 + \sum_j e^{s_j / \tau}\Big) - s_y / \tau$$

    Args:
      scores, labels, where, weights: see the module.
      temperature: `tau > 0`.
      virtual_label: `v >= 0`, the label of the class that joins.

    Returns:
      float32 `[...]`, at least 0.

    >>> calibrated_softmax([[0., 0., 0.]], [2]).numpy().round(4)  # log 4
    array([1.3863], dtype=float32)

    References:
      Yan, Qin, Wang, Bendersky, Najork (2022), "Scale calibration of deep ranking models".
    """
    if isinstance(virtual_label, numbers.Real) and not virtual_label >= 0.0:
        raise ValueError(f"virtual_label {virtual_label} is negative")
    forms = (multiclass.calibrated_softmax, listwise.calibrated_softmax)
    knobs = {"temperature": temperature, "virtual_label": virtual_label}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def unique_softmax(scores, labels, *, where=None, weights=None, temperature=1.0):
    r"""Softmax cross entropy of every class against the classes of lower label only.

    $$\ell = \sum_i (2^{t_i} - 1) \log \Big(1 + \sum_{j : t_j < t_i} e^{(s_j - s_i) / \tau}\Big)$$

    For one relevant class it is `softmax`.

    Args:
      scores, labels, where, weights: see the module.
      temperature: `tau > 0`.

    Returns:
      float32 `[...]`, at least 0.

    >>> unique_softmax([[0., 0., 0.]], [[2., 1., 0.]]).numpy().round(4)  # 3 log 3 + log 2
    array([3.989], dtype=float32)

    References:
      Zhu, Klabjan (2020), "Listwise learning to rank by exploring unique ratings".
    """
    forms = (multiclass.softmax, listwise.unique_softmax)
    return _evaluate(forms, scores, labels, where, weights, temperature=temperature)


def pairwise_logistic(
    scores,
    labels,
    *,
    where=None,
    weights=None,
    temperature=1.0,
    normalize="list",
    lambda_weight="none",
):
    r"""Pairwise logistic loss: every class below the true one, by a margin.

    $$\ell = \frac{1}{z} \sum_{j \ne y} w_j \log(1 + e^{m_j / \tau}), \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights: see the module. Dense labels sum over all pairs of different
        label.
      temperature: `tau = 1 / sigma > 0`.
      normalize: `z`. "list" is `n`, what TF-Ranking's default reduction amounts to: with many
        classes the gradient shrinks, so it wants a larger learning rate. "pairs" is the number of
        pairs (`n - 1` for one relevant class), "none" is 1, the paper's formula.
      lambda_weight: `w_j`. "none" is 1. "ndcg" and "mrr" are what the metric would change by if the
        two classes of the pair changed places (LambdaRank); "ndcg_loss2" is the bound of the
        LambdaLoss paper, TF-Ranking's default NDCG weight. They multiply by `n`, cost
        `O(n log n)`, and let no gradient through.

    Returns:
      float32 `[...]`, at least 0.

    Raises:
      ValueError: unknown `normalize` or `lambda_weight`.

    >>> pairwise_logistic([[0., 0., 0., 0.]], [2], normalize="pairs").numpy().round(4)  # log 2
    array([0.6931], dtype=float32)

    References:
      Burges et al. (2005); Rank4Class, eq. 3; Burges (2010), "From RankNet to LambdaRank to
      LambdaMART"; Wang et al. (2018), "The LambdaLoss framework for ranking metric optimization".
    """
    knobs = {"temperature": temperature, "normalize": normalize, "lambda_weight": lambda_weight}
    return _pairwise(multiclass.logistic, scores, labels, where, weights, **knobs)


def pairwise_hinge(
    scores,
    labels,
    *,
    where=None,
    weights=None,
    temperature=1.0,
    normalize="list",
    lambda_weight="none",
):
    r"""Pairwise hinge loss: every class below the true one by a margin of 1.

    $$\ell = \frac{1}{z} \sum_{j \ne y} w_j \max(0, 1 + m_j / \tau), \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights, temperature, normalize, lambda_weight: see `pairwise_logistic`.

    Returns:
      float32 `[...]`, at least 0.

    >>> pairwise_hinge([[0., 0.5, -2.]], [0], normalize="none").numpy()  # 1 + 0.5, and nothing
    array([1.5], dtype=float32)

    References:
      Joachims (2002), "Optimizing search engines using clickthrough data".
    """
    knobs = {"temperature": temperature, "normalize": normalize, "lambda_weight": lambda_weight}
    return _pairwise(multiclass.hinge, scores, labels, where, weights, **knobs)


def pairwise_soft_zero_one(
    scores,
    labels,
    *,
    where=None,
    weights=None,
    temperature=1.0,
    normalize="list",
    lambda_weight="none",
):
    r"""Soft count of the classes above the true one.

    $$\ell = \frac{1}{z} \sum_{j \ne y} \frac{w_j}{1 + e^{-m_j / \tau}}, \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights, temperature, normalize, lambda_weight: see `pairwise_logistic`.

    Returns:
      float32 `[...]`, at least 0.

    >>> pairwise_soft_zero_one([[0., 0., 0., 0.]], [2], normalize="pairs").numpy()
    array([0.5], dtype=float32)
    """
    knobs = {"temperature": temperature, "normalize": normalize, "lambda_weight": lambda_weight}
    return _pairwise(multiclass.soft_zero_one, scores, labels, where, weights, **knobs)


def pairwise_mse(scores, labels, *, where=None, weights=None, temperature=1.0, normalize="list"):
    r"""Squared error of every difference of two scores.

    $$\ell = \frac{1}{z} \sum_{i \ne j} \big((s_i - s_j) / \tau - (t_i - t_j)\big)^2$$

    Mean squared error that does not see a shift of all scores. Class ids take `O(n)`:
    the sum is `2n` times the squared distance of `s - t` from its mean.

    Args:
      scores, labels, where, weights, temperature, normalize: see `pairwise_logistic`; there are
        `n (n - 1)` pairs.

    Returns:
      float32 `[...]`, at least 0.

    >>> pairwise_mse([[3., 0.]], [0], normalize="pairs").numpy()  # 3 where it should be 1
    array([4.], dtype=float32)
    """
    _check_choice("normalize", normalize, NORMALIZERS)
    forms = (multiclass.pairwise_mse, listwise.pairwise_mse)
    knobs = {"temperature": temperature, "normalize": normalize}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def yeti_logistic(
    scores,
    labels,
    *,
    seed,
    where=None,
    weights=None,
    temperature=1.0,
    samples=8,
    gumbel_temperature=1.0,
    normalize="list",
):
    r"""YetiRank: pairwise logistic loss of neighbours, in orders drawn from the model.

    $$\ell = \frac{n}{z S} \Big(1 - \frac{1}{\log_2 3}\Big) \sum_{i=1}^{S} \sum_{(a, b)}
    (2^{t_a} - 2^{t_b}) \log(1 + e^{(s_b - s_a) / \tau})$$

    over the pairs of neighbours in the order of the i-th noisy copy of the scores, `t_a > t_b`.

    Args:
      scores, labels, where, weights, temperature, normalize: see `pairwise_logistic`.
      seed: int32 `[2]`; the noise is a pure function of it.
      samples: `S`; time and memory grow with it.
      gumbel_temperature: divides the noisy scores.

    Returns:
      float32 `[...]`, at least 0.

    >>> yeti_logistic([[9., 0., 0.]], [0], seed=[0, 0]).numpy() < 0.01
    array([ True])

    References:
      Lyzhin, Ustimenko, Gulin, Prokhorenkova (2022), "Which tricks are important for learning to
      rank?".
    """
    _check_choice("normalize", normalize, NORMALIZERS)
    noise = _noise(seed, samples, gumbel_temperature)
    forms = (None, gumbel_noise.average(listwise.yeti_logistic, **noise))
    knobs = {"temperature": temperature, "normalize": normalize}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def approx_ndcg(scores, labels, *, where=None, weights=None, temperature=0.1, rank_fn=None):
    r"""Negative NDCG on soft ranks.

    $$\ell = -\frac{1}{\log_2(1 + r)}, \quad r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}$$

    Args:
      scores, labels, where, weights: see the module. Dense labels have gains `2^t - 1`.
      temperature: `tau > 0`; the loss tends to minus NDCG as it falls.
      rank_fn: another rank function `rank_fn(scores / tau, where) -> ranks`, both `[..., n]`, such as
        `ranks.all_ranks` (then the loss is minus NDCG itself) or a learned sorter. `where` is
        bool `[..., n]` or None. None stands for `ranks.sigmoid_ranks`, in `O(n)` for class ids.

    Returns:
      float32 `[...]`, in `[-1, 0)`; 0 where no class is relevant.

    >>> approx_ndcg([[0., 0., 0.]], [2]).numpy().round(4)  # rank 2: -1 / log2(3)
    array([-0.6309], dtype=float32)
    >>> approx_ndcg([[3., 1., 2.]], [2], rank_fn=ranks.all_ranks).numpy().round(4)
    array([-0.6309], dtype=float32)

    References:
      Qin, Liu, Li (2010); Rank4Class, eq. 4.
    """
    forms = (multiclass.approx_ndcg, listwise.approx_ndcg)
    knobs = {"temperature": temperature, "rank_fn": rank_fn}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def approx_mrr(scores, labels, *, where=None, weights=None, temperature=0.1, rank_fn=None):
    r"""Negative reciprocal rank on soft ranks.

    $$\ell = -\frac{1}{r}, \quad r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}$$

    Args:
      scores, labels, where, weights: see the module. Dense labels take the mean over the relevant
        classes, weighted by label.
      temperature, rank_fn: see `approx_ndcg`.

    Returns:
      float32 `[...]`, in `[-1, 0)`; 0 where no class is relevant.

    >>> approx_mrr([[0., 0., 0.]], [2]).numpy()
    array([-0.5], dtype=float32)

    References:
      Qin, Liu, Li (2010).
    """
    forms = (multiclass.approx_mrr, listwise.approx_mrr)
    knobs = {"temperature": temperature, "rank_fn": rank_fn}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def gumbel(loss):
    r"""Wraps any loss of this module that draws nothing itself: its mean over noisy copies of the scores.

    $$\ell = \frac{1}{S} \sum_{i=1}^{S} \ell_0((s + g_i) / \tau_g), \quad g_i \sim \text{Gumbel}(0, 1)$$

    Args:
      loss: a function of this module, with one score a class.

    Returns:
      The same function with three more keyword arguments: `seed`, int32 `[2]`, of which the noise is
      a pure function; `samples=8`, `S`, with which time and memory grow; and
      `gumbel_temperature=1.0`, `tau_g > 0`.

    Raises:
      ValueError: the loss draws noise of its own, or takes several scores a class.

    >>> noisy_hinge = gumbel(pairwise_hinge)
    >>> noisy_hinge([[99., 0., 0.]], [0], seed=[0, 0], samples=4).numpy()
    array([0.], dtype=float32)

    References:
      Bruch, Han, Bendersky, Najork (2020), "A stochastic treatment of learning to rank scoring
      functions".
    """
    if "seed" in inspect.signature(loss).parameters:
        raise ValueError(f"{loss.__name__} draws noise already")
    if loss in (ordinal, mixture_em, click_em):
        raise ValueError(f"{loss.__name__} takes several scores a class: noise is drawn for one")

    def noisy_loss(
        scores, labels, *, seed, where=None, weights=None, samples=8, gumbel_temperature=1.0, **knobs
    ):
        noise = _noise(seed, samples, gumbel_temperature)
        scores, labels, where, _ = _checked(scores, labels, where)

        def form(scores, labels, where):
            return loss(scores, labels, where=where, **knobs)

        return _weighted(gumbel_noise.average(form, **noise)(scores, labels, where), weights)

    return noisy_loss


def gumbel_approx_ndcg(
    scores,
    labels,
    *,
    seed,
    where=None,
    weights=None,
    temperature=0.1,
    samples=8,
    gumbel_temperature=1.0,
):
    r"""ApproxNDCG on scores with Gumbel noise, averaged over samples: `gumbel(approx_ndcg)`.

    Args:
      scores, labels, where, weights, temperature: see `approx_ndcg`.
      seed, samples, gumbel_temperature: see `gumbel`.

    Returns:
      float32 `[...]`, in `[-1, 0)`.

    >>> gumbel_approx_ndcg([[9., 0., 0.]], [0], seed=[0, 0]).numpy().round(2)
    array([-1.], dtype=float32)

    References:
      Bruch, Han, Bendersky, Najork (2020); Rank4Class, section 5.1.
    """
    noise = {"seed": seed, "samples": samples, "gumbel_temperature": gumbel_temperature}
    return gumbel(approx_ndcg)(scores, labels, where=where, weights=weights, temperature=temperature, **noise)


def list_mle(scores, labels, *, seed, where=None, weights=None, temperature=1.0):
    r"""ListMLE: negative log likelihood, under Plackett and Luce's law, of the order of the labels.

    $$\ell = \sum_i \Big(\log \sum_{j \ge i} e^{s_{\pi(j)} / \tau} - s_{\pi(i)} / \tau\Big)$$

    Args:
      scores, labels, where, weights: see the module.
      seed: int32 `[2]`; `pi` sorts the labels downwards, and classes of equal label stand in an order
        that is drawn from the seed.
      temperature: `tau > 0`.

    Returns:
      float32 `[...]`, at least 0.

    >>> list_mle([[0., 0., 0.]], [[2., 1., 0.]], seed=[0, 0]).numpy().round(4)  # log 3!
    array([1.7918], dtype=float32)

    References:
      Xia, Liu, Wang, Zhang, Li (2008), "Listwise approach to learning to rank".
    """
    _check_seed(seed)
    forms = (None, listwise.list_mle)
    return _evaluate(forms, scores, labels, where, weights, temperature=temperature, seed=seed)


def coupled_rank_distil(
    scores, labels, *, seed, where=None, weights=None, temperature=1.0, samples=8, top_k=None
):
    r"""RankDistil: cross entropy of the model's orders against a teacher's.

    $$\ell = -\frac{1}{S} \sum_{i=1}^{S} \log P_K(\pi_i \mid s / \tau), \quad \pi_i \sim P(\cdot \mid t)$$

    `P` is Plackett and Luce's law, `P_K` that of its first `K` places.

    Args:
      scores, where, weights: see the module.
      labels: `t`, the teacher's scores, not negative.
      seed: int32 `[2]`; the orders are a pure function of it.
      temperature: `tau > 0`.
      samples: `S`; time and memory grow with it.
      top_k: `K` of at least 1; None counts the whole list.

    Returns:
      float32 `[...]`, at least 0.

    >>> coupled_rank_distil([[0., 0., 0.]], [[2., 1., 0.]], seed=[0, 0], top_k=1).numpy().round(4)
    array([1.0986], dtype=float32)

    References:
      Reddi et al. (2021), "RankDistil: knowledge distillation for ranking".
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k {top_k} is less than 1")
    _noise(seed, samples, 1.0)
    knobs = {"temperature": temperature, "seed": seed, "samples": samples, "top_k": top_k}
    return _evaluate((None, listwise.coupled_rank_distil), scores, labels, where, weights, **knobs)


def mse(scores, labels, *, where=None, weights=None):
    r"""Mean squared error against the one-hot label.

    $$\ell = \frac{1}{n} \sum_j (s_j - [j = y])^2$$

    Args:
      scores, labels, where, weights: see the module.

    Returns:
      float32 `[...]`, at least 0.

    >>> mse([[0., 0., 0., 2.]], [3]).numpy()
    array([0.25], dtype=float32)

    References:
      Hui, Belkin (2021), "Evaluation of neural architectures trained with square loss vs
      cross-entropy in classification tasks"; Rank4Class, appendix D.
    """
    return _evaluate((multiclass.mse, listwise.mse), scores, labels, where, weights)


def rescaled_mse(scores, labels, *, where=None, weights=None, kappa=15.0, target=30.0):
    r"""Mean squared error with a larger target and weight for the true class.

    $$\ell = \frac{1}{n} \Big(\kappa (s_y - M)^2 + \sum_{j \ne y} s_j^2\Big)$$

    Made for many classes, where the plain form drowns the one true class in zeros.

    Args:
      scores, labels, where, weights: see the module. A graded label `t` has target `t M` and
        weight `1 + t (kappa - 1)`.
      kappa: weight of the true class; 15 is the published value for ImageNet.
      target: `M`, its target; 30 is the published value for ImageNet.

    Returns:
      float32 `[...]`, at least 0.

    >>> rescaled_mse([[0., 2.]], [1], kappa=4.0, target=3.0).numpy()
    array([2.], dtype=float32)

    References:
      Hui, Belkin (2021), section 3; Rank4Class, appendix D.
    """
    for name, value in (("kappa", kappa), ("target", target)):
        if not isinstance(value, numbers.Real):
            raise ValueError(f"{name} must be a number, got {value!r}")
    forms = (multiclass.rescaled_mse, listwise.rescaled_mse)
    return _evaluate(forms, scores, labels, where, weights, kappa=kappa, target=target)


def sigmoid_cross_entropy(scores, labels, *, where=None, weights=None, temperature=1.0):
    r"""Mean cross entropy of one binary problem a class: is it the true one?

    $$\ell = \frac{1}{n} \Big(\log(1 + e^{-s_y / \tau}) + \sum_{j \ne y} \log(1 + e^{s_j / \tau})\Big)$$

    Args:
      scores, labels, where, weights: see the module. Dense labels are probabilities, in `[0, 1]`.
      temperature: `tau > 0`.

    Returns:
      float32 `[...]`, at least 0 for labels in `[0, 1]`.

    >>> sigmoid_cross_entropy([[0., 0., 0.]], [2]).numpy().round(4)  # log 2
    array([0.6931], dtype=float32)
    """
    forms = (multiclass.sigmoid_cross_entropy, listwise.sigmoid_cross_entropy)
    return _evaluate(forms, scores, labels, where, weights, temperature=temperature)


def ordinal(scores, labels, *, where=None, weights=None, use_fraction_label=False):
    r"""Ordinal loss: one binary problem a level, is the label at least so high?

    $$\ell = \frac{1}{n} \sum_j \sum_{l=1}^{L} \text{CE}([t_j \ge l], \sigma(s_{jl}))$$

    Args:
      scores: float `[..., n, L]`, one score a level.
      labels, where, weights: see the module.
      use_fraction_label: whether a label between two levels counts for the upper one by its
        fraction.

    Returns:
      float32 `[...]`, at least 0.

    >>> ordinal([[[0., 0.], [0., 0.]]], [[2., 1.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      TF-Ranking, `OrdinalLoss`.
    """
    forms = (None, listwise.ordinal)
    knobs = {"use_fraction_label": use_fraction_label}
    return _evaluate(forms, scores, labels, where, weights, heads=True, **knobs)


def mixture_em(scores, labels, *, where=None, weights=None, alpha=1.0):
    r"""Expectation maximisation over a mixture of models: each list trains the models that explain it.

    $$\ell = \sum_h q_h \ell_h, \quad q_h \propto e^{-\alpha \ell_h}, \quad
    \ell_h = \sum_j \text{CE}(t_j, \sigma(s_{jh}))$$

    Args:
      scores: float `[..., n, H]`, one score a model.
      labels, where, weights: see the module.
      alpha: `alpha > 0`, how sharply the models are told apart; no gradient flows through `q`.

    Returns:
      float32 `[...]`, at least 0.

    >>> mixture_em([[[0., 0.], [0., 0.]]], [[1., 0.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      Yan, Qin, Zhuang, Wang, Bendersky, Najork (2022), "Revisiting two-tower models for unbiased
      learning to rank"; TF-Ranking, `MixtureEMLoss`.
    """
    return _evaluate((None, listwise.mixture_em), scores, labels, where, weights, heads=True, alpha=alpha)


def click_em(scores, labels, *, where=None, weights=None, exam_loss_weight=1.0, rel_loss_weight=1.0):
    r"""Expectation maximisation for clicks: a click is an examined and relevant class.

    Mean over the classes of the cross entropy of the two scores against the posterior probabilities
    of examination and of relevance given the click; no gradient flows through the posteriors.

    Args:
      scores: float `[..., n, 2]`: the score of examination, the score of relevance.
      labels: clicks, at least 1 for a clicked class; or the id of the one clicked class.
      where, weights: see the module.
      exam_loss_weight, rel_loss_weight: of the two parts.

    Returns:
      float32 `[...]`, at least 0.

    Raises:
      ValueError: the last axis of the scores is not 2.

    >>> click_em([[[0., 0.]]], [[1.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      Wang, Golbandi, Bendersky, Metzler, Najork (2018), "Position bias estimation for unbiased
      learning to rank in personal search"; TF-Ranking, `ClickEMLoss`.
    """
    shape = ranks.dense("scores", scores).shape
    if shape[-1] not in (2, None):
        raise ValueError(f"click_em needs two scores a class, got scores of shape {shape}")
    knobs = {"exam_loss_weight": exam_loss_weight, "rel_loss_weight": rel_loss_weight}
    return _evaluate((None, listwise.click_em), scores, labels, where, weights, heads=True, **knobs)


def _pairwise(term, scores, labels, where, weights, *, temperature, normalize, lambda_weight):
    _check_choice("normalize", normalize, NORMALIZERS)
    _check_choice("lambda_weight", lambda_weight, lambda_weights.NAMES)
    forms = (functools.partial(multiclass.pairwise, term), functools.partial(listwise.pairwise, term))
    knobs = {"temperature": temperature, "normalize": normalize, "lambda_weight": lambda_weight}
    return _evaluate(forms, scores, labels, where, weights, **knobs)


def _evaluate(forms, scores, labels, where, weights, heads=False, **knobs):
    """Checks the input, picks the form that fits the labels, and weighs its losses.

    Args:
      forms: two functions `form(scores, labels, where, **knobs)`, for class ids (None: see them as
        one-hot labels) and for dense labels.
      scores, labels, where, weights: see the module.
      heads: whether the scores have one more axis than the lists, `[..., n, H]`.
      **knobs: for the forms.
    """
    for name in ("temperature", "kappa", "alpha"):
        _check_positive(name, knobs.get(name, 1.0))
    rank_fn = knobs.get("rank_fn")
    if rank_fn is not None:
        ranks.check_rank_fn(rank_fn)
    integer_form, dense_form = forms
    scores, labels, where, are_ids = _checked(scores, labels, where, heads)
    if are_ids:
        axis = -2 if heads else -1
        n = scores.shape[axis] or tf.shape(scores)[axis]
        form = integer_form or functools.partial(_on_one_hot, dense_form, n)
        losses = _on_ids(form, scores, labels, where, n, knobs)
    else:
        counted = labels if where is None else tf.where(where, labels, 0.0)
        relevant.check(counted, knobs.get("max_relevant"))
        _check_levels(counted, knobs.get("levels"))
        losses = _on_gains(dense_form, scores, labels, where, knobs)
    return _weighted(losses, weights)


def _checked(scores, labels, where, heads=False):
    """Returns the scores in float32, the labels, the mask `[..., n]` or None, and whether labels are ids."""
    scores, labels = ranks.dense("scores", scores), ranks.dense("labels", labels)
    axes = ("n", "H") if heads else ("n",)
    if not scores.dtype.is_floating or scores.shape.rank is None or scores.shape.rank < len(axes):
        raise ValueError(
            f"scores must be floats of shape [..., {', '.join(axes)}], got {scores.dtype.name} {scores.shape}"
        )
    scores = tf.cast(scores, tf.float32)
    if labels.shape.rank is None:
        raise ValueError("labels need a known rank: give them one with tf.ensure_shape")
    lists = scores[..., 0] if heads else scores
    if where is not None:
        where = ranks.broadcast("where", where, tf.bool, lists)
        # A masked score may be anything; infinity or NaN would reach the gradient through 0 * NaN.
        scores = tf.where(where[..., None] if heads else where, scores, 0.0)
    if labels.shape.is_compatible_with(lists.shape[:-1]):
        return scores, label_checks.ids(labels, tf.shape(lists)[-1]), where, True
    if labels.shape.is_compatible_with(lists.shape):
        return scores, label_checks.gains(labels, tf.shape(lists), where), where, False
    raise ValueError(
        f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}: give one integer "
        f"an instance, {lists.shape[:-1]}, or one value a class, {lists.shape}"
    )


def _on_ids(form, scores, labels, where, n, knobs):
    known = label_checks.known(labels, n)
    losses = form(scores, tf.where(known, labels, 0), where, **knobs)
    return tf.where(known, losses, float("nan"))


def _on_one_hot(form, n, scores, labels, where, **knobs):
    return _on_gains(form, scores, tf.one_hot(labels, n), where, knobs)


def _on_gains(form, scores, labels, where, knobs):
    sound = label_checks.sound(labels, where)
    where = sound if where is None else where & sound
    losses = form(scores, tf.where(where, labels, 0.0), where, **knobs)
    return tf.where(tf.reduce_all(sound, axis=-1), losses, float("nan"))


def _weighted(losses, weights):
    if weights is None:
        return losses
    return losses * ranks.broadcast("weights", weights, tf.float32, losses)


def _noise(seed, samples, gumbel_temperature):
    _check_seed(seed)
    if samples < 1:
        raise ValueError(f"samples {samples} is less than 1")
    _check_positive("gumbel_temperature", gumbel_temperature)
    return {"seed": seed, "samples": samples, "temperature": gumbel_temperature}


def _check_seed(seed):
    shape = tf.convert_to_tensor(seed).shape
    if shape != [2]:
        raise ValueError(f"seed must be two integers, int32 [2], got shape {shape}")


def _check_positive(name, value):
    if isinstance(value, numbers.Real) and not value > 0:
        raise ValueError(f"{name} {value} is not positive")


def _check_levels(labels, levels):
    if levels is None or not tf.executing_eagerly():
        return
    wrong = ~listwise.are_levels(labels, levels)
    if bool(tf.reduce_any(wrong)):
        culprit = tf.where(wrong)[0].numpy().tolist()
        raise ValueError(
            f"label {float(labels[tuple(culprit)]):g} at {culprit} is no whole number in 0..{levels - 1}: "
            "raise levels, or number them from 0"
        )


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
