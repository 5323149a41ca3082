"""Predictions that are known by the gradient of their log density only."""

from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from calibjax._base.check import check_array
from calibjax._base.struct import PyTree, as_pytree, struct, widened
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import root_mean_square
from calibjax.kernels import FisherDistance

# No user is likely to choose this seed, and no draw of it is one of the targets: kernels must not
# depend on them.
_DRAWS = 0x5C07E
# The number of points of the default distance.
_POINTS = 128


#: ``score(parameters, y)`` of one prediction, in the shape of a target; or a log density, a number.
ScoreFunction = Callable[[PyTree, jax.Array], jax.Array]
#: ``sampler(key, parameters)``, one draw from one prediction.
Sampler = Callable[[jax.Array, PyTree], jax.Array]


@struct
class Unnormalized(Distribution):
    """Predictions with a density that is known up to its normalising constant.

    Energy-based models, score models, and posteriors up to a constant: the score
    s(y) = grad_y log p(y) does not depend on the constant.  Kernels for them are `SteinKernel`,
    between predictions of a `FisherDistance` or an `EmbeddingDistance` of the parameters.

    Args:
        score_function: ``score_function(parameters, y)`` of *one* prediction, whose parameters have
            no batch axis, and one target ``[]`` or ``[d]``; returns the score in the shape of y.
            It is a plain function, and part of the structure: weights of a network that all rows
            share are in its closure, and a function that is defined again is compiled again.
        parameters: an array, or any pytree of arrays, of real numbers with leading axis n: what
            differs from row to row, such as the inputs of the network.  Integers become numbers of
            floating point.
        sampler: ``sampler(key, parameters)`` returns one draw from one prediction, or None.  With
            it, the tests that draw from the model work too, and so do default kernels.

    Targets are real numbers ``[n]`` or vectors ``[n, d]``.

    In a training loop the closure may hold the weights that are differentiated, as in the second
    example, where the kernel is a SteinKernel whose prediction kernel is a DistanceKernel.

    Raises:
        TypeError, ValueError: score_function is not a plain function, or parameters have no rows;
            at its use, the score does not have the shape of a target.

    See also:
        `SteinKernel`, `FisherDistance`; `Empirical` for models that can be sampled.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> locs = jnp.linspace(-1, 1, 50)
        >>> predictions = cj.Unnormalized(lambda loc, y: -((y - loc) ** 3), locs)
        >>> predictions.score(jnp.zeros(50)).shape
        (50,)
        >>> distance = cj.FisherDistance(jnp.linspace(-2, 2, 9))
        >>> lengthscale = cj.median_heuristic(distance, predictions)
        >>> kernel = cj.SteinKernel(
        ...     cj.DistanceKernel(distance, lengthscale), cj.GaussianKernel(1.0)
        ... )
        >>> key = jax.random.key(0)
        >>> float(cj.asymptotic_skce_test(key, kernel, predictions, locs + 2.0).pvalue)
        0.001

        >>> def loss(weights, inputs, targets):
        ...     def score(x, y):  # any network
        ...         return jnp.tanh(weights[0] * x) - weights[1] * y
        ...     return cj.skce(kernel, cj.Unnormalized(score, inputs), targets)
        >>> jax.grad(loss)(jnp.ones(2), locs, jnp.zeros(50)).shape
        (2,)

    Reference: Glaser, Widmann, Lindsten and Gretton, Fast and scalable score-based kernel
    calibration tests, UAI 2023.
    """

    score_function: ScoreFunction
    parameters: PyTree
    sampler: Sampler | None = None

    target_shape = "n ..."
    score_only = True

    @classmethod
    def from_log_density(
        cls, log_density: ScoreFunction, parameters: PyTree, sampler: Sampler | None = None
    ) -> Self:
        """Predictions with the score that JAX derives of ``log_density(parameters, y)``.

        The log density of one prediction at one target is a number, up to any constant.

        Example:
            >>> import jax.numpy as jnp, calibjax as cj
            >>> predictions = cj.Unnormalized.from_log_density(
            ...     lambda loc, y: -((y - loc) ** 2) / 2, jnp.array([0.0, 1.0])
            ... )
            >>> predictions.score(jnp.array([3.0, 3.0])).tolist()
            [-3.0, -2.0]
        """
        return cls(Partial(_gradient, as_pytree(log_density, "log_density")), parameters, sampler)

    def _complete(self) -> None:
        for name in ("score_function", "sampler"):
            function = as_pytree(getattr(self, name), f"{name} of Unnormalized")
            is_plain = callable(function) and not jax.tree.leaves(function)
            if not is_plain and (name, function) != ("sampler", None):
                raise TypeError(
                    f"{name} must be a plain function of one prediction, whose closure may hold "
                    f"the weights of a network, got {type(function).__name__}."
                )
            vars(self)[name] = function
        if not jax.tree.leaves(self.parameters):
            raise ValueError("parameters must hold arrays with leading axis n, got none.")

    def parameter(self, name: str) -> jax.Array:
        return self._named()[name]

    def _named(self) -> dict[str, jax.Array]:
        paths = jax.tree_util.tree_leaves_with_path(self.parameters)
        return {f"parameters{jax.tree_util.keystr(path)}": leaf for path, leaf in paths}

    @property
    def n_batch_axes(self) -> int:
        """0 where a parameter is a number; one prediction by vectors alone looks like a batch."""
        return min(1, *map(jnp.ndim, jax.tree.leaves(self.parameters)))

    @property
    def shapes(self) -> dict[str, str]:
        return {name: "n ..." for name in self._named()}

    def score(self, targets: jax.Array) -> jax.Array:
        """The scores at targets ``[n]`` or ``[n, d]``, in their shape."""
        if targets.ndim > 2:
            shape = list(targets.shape[1:])
            raise ValueError(f"a target must be a number or a vector, got shape {shape}.")
        scores = jax.vmap(self.score_function)(self.parameters, targets)
        check_array("what score_function returns", scores, "real")
        _check_like_targets("score_function", scores.shape, targets.shape)
        if self.sampler is not None:
            draws = jax.eval_shape(self.sample, jax.random.key(0))
            _check_like_targets("sampler", draws.shape, targets.shape)
        return scores.astype(targets.dtype)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]`` or ``[*shape, n, d]``; TypeError without a sampler."""
        p = widened(self)
        if p.sampler is None:
            raise TypeError(
                "Unnormalized predictions must have a sampler to be drawn from, got none; "
                "asymptotic_skce_test with a SteinKernel, whose result has a confidence interval "
                "too, needs no draws."
            )
        draw = jax.vmap(p.sampler, (0, 0))
        for _ in shape:
            draw = jax.vmap(draw, (0, None))
        draws = draw(jax.random.split(key, (*shape, len(p))), p.parameters)
        check_array("what sampler returns", draws, "real")
        return widened(draws)

    def mean(self) -> jax.Array:
        """The means of a few draws from the sampler; TypeError without one."""
        return jnp.mean(self._draws("mean"), axis=0)

    def standard_deviation(self) -> jax.Array:
        """Those of a few draws from the sampler; TypeError without one."""
        draws = self._draws("variance")
        weights = jnp.full(len(draws), 1 / len(draws), draws.dtype)
        return root_mean_square(weights, draws - jnp.mean(draws, axis=0)[None])

    def default_distance(self) -> FisherDistance | None:
        """The Fisher distance at draws from rows that are evenly spaced."""
        if self.sampler is None:
            return None
        step = -(-len(self) // _POINTS)
        return FisherDistance(self[::step].sample(jax.random.key(_DRAWS)))

    def _draws(self, what: str) -> jax.Array:
        """Draws ``[64, n, …]`` for kernels, which must not depend on targets: of a fixed key."""
        if self.sampler is None:
            raise TypeError(
                f"the {what} of Unnormalized predictions without a sampler is not known: choose "
                "kernels yourself, such as SteinKernel(DistanceKernel(FisherDistance(points), "
                "lengthscale), GaussianKernel(lengthscale)), for asymptotic_skce_test."
            )
        return self.sample(jax.random.key(_DRAWS), (64,))


def _gradient(log_density: Callable[..., jax.Array], parameters: PyTree, y: jax.Array) -> jax.Array:
    def checked_log_density(y: jax.Array) -> jax.Array:
        value = log_density(parameters, y)
        if jnp.ndim(value):
            shape = list(jnp.shape(value))
            raise ValueError(f"log_density must return a number, of shape [], got shape {shape}.")
        return value

    return jax.grad(checked_log_density)(y)


def _check_like_targets(name: str, shape: tuple[int, ...], targets: tuple[int, ...]) -> None:
    """A ValueError unless what a user's function returned for all rows has the targets' shape."""
    if shape != targets:
        raise ValueError(
            f"{name} must return an array in the shape of one target, {list(targets[1:])}, got "
            f"shape {list(shape[1:])}."
        )
