"""What is measured: each suite's contenders and baselines, as steps that a benchmark can run."""

import functools
import math

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow_ranking.python import metrics_impl

from rank4class import losses, models
from rank4class.scripts.benchmarks import (
    data_suite,
    n_choose_k_suite,
    projections_suite,
    sorters_suite,
    training_suite,
)
from rank4class.scripts.benchmarks.suite import (
    Compiled,
    Step,
    Suite,
    memory_bytes,
    scores_and_labels,
    softmax_ce,
    value_and_gradient,
)


def _loss_steps(size):
    steps = []
    batch, n = size
    for name in (*losses.names(), *_LAMBDA_WEIGHTED):
        if name in _SORT_EVERY_SAMPLE and batch * n > 1_000_000:
            continue
        against = ["softmax_ce", "floor"]
        if _fits_tf_ranking(name, size):
            against.append(f"tensorflow_ranking:{name}")
        steps.append(Step(name, False, tuple(against)))
        if name not in _QUADRATIC_UNDER_XLA or n <= 1000:
            steps.append(Step(name, True, tuple(against)))
    return steps


def _metric_steps(size):
    del size  # every metric is measured at every size
    steps = []
    for name in _METRICS:
        for labels in ("", _DENSE):
            against = [f"naive:{name}{labels}", f"tensorflow_ranking:{name}", "floor"]
            steps += [Step(name + labels, xla, tuple(against)) for xla in (False, True)]
    return steps


def _interaction_steps(size):
    del size
    against = {name: (f"naive:{name}", "dot") if name != "dot" else ("naive:dot",) for name in _NAIVE}
    return [Step(name, xla, against[name]) for name in _NAIVE for xla in (False, True)]


_LAMBDA_WEIGHTED = {
    "pairwise_logistic ndcg": ("pairwise_logistic", "ndcg"),
    "pairwise_logistic mrr": ("pairwise_logistic", "mrr"),
}
_TF_RANKING_LOSSES = {
    "softmax": tfr.keras.losses.SoftmaxLoss,
    "calibrated_softmax": tfr.keras.losses.CalibratedSoftmaxLoss,
    "unique_softmax": tfr.keras.losses.UniqueSoftmaxLoss,
    "pairwise_logistic": tfr.keras.losses.PairwiseLogisticLoss,
    "pairwise_logistic ndcg": lambda: tfr.keras.losses.PairwiseLogisticLoss(
        lambda_weight=tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=1.0)
    ),
    "pairwise_hinge": tfr.keras.losses.PairwiseHingeLoss,
    "pairwise_soft_zero_one": tfr.keras.losses.PairwiseSoftZeroOneLoss,
    "pairwise_mse": tfr.keras.losses.PairwiseMSELoss,
    "yeti_logistic": tfr.keras.losses.YetiLogisticLoss,
    "approx_ndcg": tfr.keras.losses.ApproxNDCGLoss,
    "approx_mrr": tfr.keras.losses.ApproxMRRLoss,
    "gumbel_approx_ndcg": tfr.keras.losses.GumbelApproxNDCGLoss,
    "list_mle": tfr.keras.losses.ListMLELoss,
    "coupled_rank_distil": tfr.keras.losses.CoupledRankDistilLoss,
    "mse": tfr.keras.losses.MeanSquaredLoss,
    "sigmoid_cross_entropy": tfr.keras.losses.SigmoidCrossEntropyLoss,
    "ordinal": lambda: tfr.keras.losses.OrdinalLoss(ordinal_size=2),
    "mixture_em": tfr.keras.losses.MixtureEMLoss,
    "click_em": tfr.keras.losses.ClickEMLoss,
}
_LINEAR_IN_TF_RANKING = {
    "softmax",
    "calibrated_softmax",
    "list_mle",
    "mse",
    "sigmoid_cross_entropy",
    "ordinal",
    "mixture_em",
    "click_em",
}
_TF_RANKING_PAIRS = {
    "pairwise_logistic",
    "pairwise_hinge",
    "pairwise_soft_zero_one",
    "approx_ndcg",
    "approx_mrr",
}
# Sorting eight noisy copies of millions of scores takes minutes a step: left out.
_SORT_EVERY_SAMPLE = {"yeti_logistic", "coupled_rank_distil"}
# They take running sums, for which XLA takes O(n^2) on CPUs.
_QUADRATIC_UNDER_XLA = {"list_mle", "coupled_rank_distil"}
_METRICS = {
    "top5_accuracy": functools.partial(metrics_impl.HitsMetric, topn=5),
    "ndcg@5": functools.partial(metrics_impl.NDCGMetric, topn=5),
    "ndcg": functools.partial(metrics_impl.NDCGMetric, topn=None),
    "mrr": functools.partial(metrics_impl.MRRMetric, topn=None),
    "mean_rank": metrics_impl.ARPMetric,
    "precision@5": functools.partial(metrics_impl.PrecisionMetric, topn=5),
    "recall@5": functools.partial(metrics_impl.RecallMetric, topn=5),
    "map": functools.partial(metrics_impl.MeanAveragePrecisionMetric, topn=None),
}
_DENSE = " dense"


def _fits_tf_ranking(name, size):
    """Whether TF-Ranking's form, with its tensors of `[B, n, n]`, is there and fits in memory."""
    if name not in _TF_RANKING_LOSSES:
        return False
    batch, n = size
    lists = batch * losses.get(_loss_of(name)[0]).options.get("samples", 1)
    items = lists * n if name in _LINEAR_IN_TF_RANKING else lists * n * n
    alive = 9 if name in _TF_RANKING_PAIRS else 20  # tensors of that size, as seen
    return alive * 4 * items < memory_bytes()


def _build_loss(step, size):
    batch, n = size
    scores, labels = scores_and_labels(batch, n)
    kind, _, of = step.name.partition(":")
    if kind == "floor":
        return Compiled(_read_and_write, step.xla, scores)
    if kind == "softmax_ce":
        return Compiled(value_and_gradient(softmax_ce), step.xla, scores, labels)
    name, _ = _loss_of(of or kind)
    if losses.LOSSES[name].heads:
        scores = tf.stack([scores, scores / 2.0], axis=-1)
    if kind == "tensorflow_ranking":
        loss, labels = _TF_RANKING_LOSSES[of](), tf.one_hot(labels, n)
    else:
        loss = _our_loss(kind)
    return Compiled(value_and_gradient(lambda s, y: loss(y, s)), step.xla, scores, labels)


def _build_metric(step, size):
    scores, labels = scores_and_labels(*size)
    kind, _, of = step.name.partition(":")
    if kind == "floor":
        return Compiled(_read, step.xla, scores)
    if kind == "tensorflow_ranking" or kind.endswith(_DENSE) or of.endswith(_DENSE):
        labels = tf.one_hot(labels, size[1])
    return Compiled(_metric(kind, of), step.xla, scores, labels)


def _build_interaction(step, size):
    batch, n, width, units = size
    kind, _, of = step.name.partition(":")
    name = of or kind
    knobs = {"units": units} if "units" in models.INTERACTIONS.option_names(name) else {}
    tf.keras.utils.set_random_seed(0)  # both sides get the same weights
    interaction = models.get("interaction", name, **knobs)
    h, c = (tf.random.stateless_normal([rows, width], [1, rows]) for rows in (batch, n))
    interaction([h, c])
    scores_of = functools.partial(_NAIVE[name], interaction) if of else lambda h, c: interaction([h, c])

    def value_and_gradients(h, c):
        with tf.GradientTape() as tape:
            tape.watch([h, c])
            value = tf.reduce_mean(tf.square(scores_of(h, c)))
        return value, tape.gradient(value, [h, c, *interaction.trainable_variables])

    return Compiled(value_and_gradients, step.xla, h, c)


def _pairs(h, c):
    batch, n = h.shape[0], c.shape[0]
    return tf.repeat(h[:, None, :], n, axis=1), tf.repeat(c[None, :, :], batch, axis=0)


def _naive_dot(interaction, h, c):
    return tf.reduce_sum(tf.multiply(*_pairs(h, c)), axis=-1) + interaction.bias


def _naive_bilinear(interaction, h, c):
    h, c = _pairs(h, c)
    return tf.reduce_sum(tf.tensordot(h, interaction.kernel, axes=1) * c, axis=-1)


def _naive_cosine(interaction, h, c):
    h, c = (tf.math.l2_normalize(x, axis=-1) for x in _pairs(h, c))
    return tf.reduce_sum(h * c, axis=-1) / interaction.temperature


def _naive_mlp(join, interaction, h, c):
    hidden = join(_pairs(h, c))
    for kernel, bias in (
        (interaction.first_kernel, interaction.first_bias),
        (interaction.second_kernel, interaction.second_bias),
    ):
        hidden = tf.nn.relu(tf.tensordot(hidden, kernel, axes=1) + bias)
    return tf.squeeze(tf.tensordot(hidden, interaction.read_out, axes=1) + interaction.read_out_bias, -1)


_NAIVE = {
    "dot": _naive_dot,
    "bilinear": _naive_bilinear,
    "cosine": _naive_cosine,
    "lc_mlp": functools.partial(_naive_mlp, lambda pair: tf.multiply(*pair)),
    "concat_mlp": functools.partial(_naive_mlp, functools.partial(tf.concat, axis=-1)),
}


def _loss_of(name):
    return _LAMBDA_WEIGHTED.get(name, (name, "none"))


def _our_loss(name):
    base, weight = _loss_of(name)
    return losses.get(base, lambda_weight=weight) if name in _LAMBDA_WEIGHTED else losses.get(base)


def _read_and_write(scores):
    return -scores


def _read(scores):
    return tf.reduce_sum(scores, axis=-1)


def _metric(kind, of):
    """The mean of a metric over a batch: ours, TF-Ranking's, or the naive one by a sort of all scores."""
    if kind == "tensorflow_ranking":
        theirs = _METRICS[of](None)
        return lambda scores, labels: theirs.compute(labels, scores)[0]
    name = (of or kind).removesuffix(_DENSE)
    ours = losses.get_metric(name)
    if kind != "naive":
        return lambda scores, labels: ours.function(scores, labels, **ours.options)

    def naive(scores, labels):
        places = tf.argsort(tf.argsort(scores, direction="DESCENDING")) + 1
        if labels.shape.rank == 2:
            labels = tf.argmax(labels, axis=-1)
        return ours.of_rank(tf.cast(tf.gather(places, labels, batch_dims=1), tf.float32))

    return naive


SUITES = {
    "losses": Suite(
        axes="BATCHxCLASSES",
        sizes=("64x28", "64x1000", "16x5000", "16x10000", "16x1000000"),
        contenders=_loss_steps,
        build=_build_loss,
    ),
    "metrics": Suite(
        axes="BATCHxCLASSES",
        sizes=("64x28", "64x1000", "16x5000", "16x10000", "16x1000000"),
        contenders=_metric_steps,
        build=_build_metric,
    ),
    "interactions": Suite(
        axes="BATCHxCLASSESxWIDTHxUNITS",
        sizes=("32x28x768x256", "64x1000x512x64", "64x1000x2048x256"),
        contenders=_interaction_steps,
        build=_build_interaction,
        values=lambda size: math.prod(size[:3]),  # the pairs of the naive ones
    ),
    "projections": projections_suite.SUITE,
    "n_choose_k": n_choose_k_suite.SUITE,
    "sorters": sorters_suite.SUITE,
    "data": data_suite.SUITE,
    "training": training_suite.SUITE,
}
