"""The figures that the four papers report, and a re-analysis of Rank4Class's 270."""

import dataclasses
import pathlib

import numpy as np
import pandas as pd
import scipy.stats

from rank4class import losses
from rank4class.pipelines.evaluation import multiple_comparisons

VALUES = pathlib.Path(__file__).with_name("values.csv")
GRIDS = tuple(f"rank4class/table{number}" for number in range(7, 13))  # 15 cells and 3 metrics each
BASELINE = "loss=softmax,interaction=dot"


def read(table: str) -> pd.DataFrame:
    """Returns the cells of a paper's table.

    Args:
      table: its name, such as "rankmax/table2/movielens_100k"; of several tables that begin with it, all.

    Returns:
      A frame with the columns "table", "cell", "metric" and "value"; rates are in percent.

    Raises:
      ValueError: there is no such table.

    >>> read("sodeep/table1")[["cell", "value"]].values.tolist()
    [['loss=handcrafted', 3.5], ['loss=cnn', 1.2], ['loss=lstm', 0.33]]
    """
    frame = pd.read_csv(VALUES)
    rows = frame[(frame["table"] == table) | frame["table"].str.startswith(f"{table}/")]
    if rows.empty:
        raise ValueError(
            f"table={table!r}: no such table. Choose one of {', '.join(frame['table'].unique())}."
        )
    return rows


def name_of(cell: str) -> dict[str, str]:
    """Returns the parts of a cell's name.

    >>> name_of("loss=softmax,interaction=dot")
    {'loss': 'softmax', 'interaction': 'dot'}
    """
    return dict(part.split("=", 1) for part in cell.split(","))


@dataclasses.dataclass(frozen=True)
class Reanalysis:
    """What the cells of Rank4Class's Tables 7 to 12 say of one metric.

    A gain is an improvement over softmax with the dot interaction, in points. A setting is a dataset with an
    encoder.

    Attributes:
      metric: its name.
      best_gain: mean over the settings of the gain of the best of the 15 cells on the metric that judges it.
      chosen_gain: the same for the cell with the best mean rank on the five other settings.
      chance_gain: expected gain of the best of 15 cells that differ by chance only.
      p_value: of Friedman's test that the losses, with the dot interaction, are ranked alike by chance.
      settings_won: settings whose best cell is not the baseline.
    """

    metric: str
    best_gain: float
    chosen_gain: float
    chance_gain: float
    p_value: float
    settings_won: int


def reanalyse(metric: str, seed_deviation: float) -> Reanalysis:
    """Re-analyses the 90 published cells of a metric.

    Args:
      metric: "top1_error", "top5_error" or "ndcg@5".
      seed_deviation: standard deviation of the metric over the seeds of a cell, in points; the papers do not
        report theirs.

    >>> gains = reanalyse("top1_error", seed_deviation=0.35)
    >>> round(gains.best_gain, 2), round(gains.chosen_gain, 2), round(gains.p_value, 2), gains.settings_won
    (0.53, 0.2, 0.25, 6)
    """
    cells = read("rank4class")
    cells = cells.assign(cell=cells["cell"].str.replace("rescaled_mse", "mse"))  # ImageNet's form of it
    table = (
        cells[cells["metric"] == metric].pivot(index="table", columns="cell", values="value").loc[[*GRIDS]]
    )
    sign = 1.0 if losses.get_metric(metric).higher_is_better else -1.0
    gains = sign * table.sub(table[BASELINE], axis=0)
    ranks = (sign * table).rank(axis=1)
    chosen = (ranks.sum() - ranks).idxmax(axis=1)  # of each setting, by the others
    with_dot = [name for name in table if name.endswith("interaction=dot")]
    return Reanalysis(
        metric,
        best_gain=float(gains.max(axis=1).mean()),
        chosen_gain=float(np.mean([gains.loc[setting, name] for setting, name in chosen.items()])),
        chance_gain=multiple_comparisons.expected_best(seed_deviation, len(gains.columns)),
        p_value=float(scipy.stats.friedmanchisquare(*(table[name] for name in with_dot)).pvalue),
        settings_won=int((gains.idxmax(axis=1) != BASELINE).sum()),
    )
