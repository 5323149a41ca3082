"""Random features: h as an average over features of products of two numbers, one per sample."""

from calibjax.features._random_features import Features as Features
from calibjax.features._random_features import draw_features as draw_features
from calibjax.features._random_features import one_feature as one_feature
from calibjax.features._sums import map_rows as map_rows
from calibjax.features._sums import sum_rows as sum_rows
