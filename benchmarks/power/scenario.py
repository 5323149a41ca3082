"""What a scenario is."""

from collections.abc import Callable
from typing import Any

import jax

#: ``scenario(key, n)`` returns n predictions, and targets that follow another law.
Scenario = Callable[[jax.Array, int], tuple[Any, jax.Array]]

#: The name of the scenario in which targets follow the predictions.
CALIBRATED = "calibrated"
