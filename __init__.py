"""rank4class: multiclass classification as ranking, on TensorFlow and TF-Ranking.

The instance is the query, the classes are the items to rank. The rooms are `losses`, `models`,
`data`, `pipelines` and `scripts`; README.md shows the way in.
"""

__version__ = "0.1.0"
