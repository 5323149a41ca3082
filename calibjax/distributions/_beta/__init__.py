"""Beta predictions of numbers between 0 and 1."""

from calibjax.distributions._beta._beta import Beta
from calibjax.distributions._beta._tails import beta_tails
