"""Users' functions in the structure: what shares a compilation, and what must not."""

import copy
import dataclasses
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._static import StaticFunction
from calibjax._struct import as_pytree, bind

P = cj.Normal(jnp.array([0.0, 1.0, 3.0]), jnp.array([1.0, 2.0, 1.5]))
Y = jnp.array([0.5, -1.0, 2.0])
SCALE = 2.0


def skce_of(phi):
    distance = cj.EmbeddingDistance(phi)
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.GaussianKernel(1.0))
    return float(cj.skce(kernel, P, Y))


def of_global(p):
    return SCALE * p.loc


def recursive(n):
    return n if n < 2 else recursive(n - 1)


class Model:
    def __init__(self, w):
        self.w = w

    def embed(self, p):
        return self.w * p.loc

    __call__ = embed


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered(Model):
    w: float


@dataclasses.dataclass(frozen=True)
class Frozen(Model):
    w: float


def made_with(w):
    return lambda p: w * p.loc


EQUAL = {
    "a number": lambda: made_with(2.0),
    "an array": lambda: made_with(np.arange(3.0)),
    "a container": lambda: made_with({"w": [1.0, np.ones(2)], "z": None}),
    "a function": lambda: made_with(lambda z: z),
    "a kernel": lambda: made_with(cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p), 2.0)),
    "a partial function": lambda: functools.partial(made_with(1.0), 2),
    "defaults": lambda: lambda p, w=(1, 2), *, v="v": p.loc,
    "a frozen object": lambda: Frozen(2.0),
    "recursion": lambda: recursive,
    "a class": lambda: Frozen,
}

FUNCTION = made_with(2.0)
ARRAY = jnp.ones(2)
DIFFERENT = {
    "numbers": [made_with(2.0), made_with(3.0)],
    "types": [made_with(1), made_with(1.0), made_with(True)],
    "signs of 0": [made_with(0.0), made_with(-0.0)],
    "arrays": [made_with(np.ones(2)), made_with(np.zeros(2)), made_with(np.ones(2, int))],
    "arrays of jax": [made_with(jnp.ones(2)), made_with(jnp.ones(2)), made_with(ARRAY)],
    "code": [lambda p: p.loc, lambda p: p.scale],
    "functions": [made_with(lambda z: z), made_with(lambda z: -z)],
    "defaults": [lambda p, w=1: p.loc, lambda p, w=2: p.loc],
    "frozen objects": [Frozen(1.0), Frozen(2.0)],
    "objects": [made_with(Model(1.0)), made_with(Model(1.0))],
    "partial functions": [functools.partial(FUNCTION, 1), functools.partial(FUNCTION, 2)],
}


@pytest.mark.parametrize("name", EQUAL)
def test_functions_that_do_the_same_are_equal(name):
    first, second = (StaticFunction(EQUAL[name]()) for _ in range(2))
    assert first == second and hash(first) == hash(second)


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_that_differ_are_not(name):
    functions = [StaticFunction(function) for function in DIFFERENT[name]]
    assert len(set(functions)) == len(functions)


CHANGES = {
    "an array": (np.array(2.0), lambda w: np.put(w, 0, 3.0)),
    "a dictionary": ({"w": 2.0}, lambda w: w.update(w=3.0)),
    "a list": ([1.0, [2.0]], lambda w: w[1].append(3.0)),
    "an object": (Model(2.0), lambda model: setattr(model, "w", 3.0)),
    "an object in an object": (Model(Model(2.0)), lambda model: setattr(model.w, "w", 3.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_closure_holds_may_change(name):
    held, change = CHANGES[name]
    function = made_with(held)
    before = StaticFunction(function)
    assert before == StaticFunction(function)
    change(held)
    assert before != StaticFunction(function)


def test_globals_may_change(monkeypatch):
    before, nested = StaticFunction(of_global), StaticFunction(lambda p: of_global(p))
    partial = StaticFunction(functools.partial(of_global))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert before != StaticFunction(of_global)
    assert partial != StaticFunction(functools.partial(of_global))
    assert nested != StaticFunction(lambda p: of_global(p))


def test_an_object_that_refers_to_itself():
    model = Model(1.0)
    model.w = [model]
    assert StaticFunction(made_with(model)) == StaticFunction(made_with(model))


def test_a_function_made_anew_is_compiled_once():
    skce_of(lambda p: 2 * p.loc)
    traced = []

    def phi_of(_):
        return lambda p: traced.append(1) or p.loc

    values = [skce_of(phi_of(i)) for i in range(3)]
    assert len(set(values)) == 1
    # `traced` is part of the closure, and grows: what it holds is looked at.
    before = len(traced)
    skce_of(phi_of(0))
    skce_of(phi_of(0))
    assert len(traced) <= 2 * before


def test_no_stale_results():
    w = np.array(1.0, "float32")
    function = made_with(w)
    first = skce_of(function)
    w[...] = 5.0
    assert first == skce_of(lambda p: p.loc) != skce_of(function) == skce_of(lambda p: 5 * p.loc)


@pytest.mark.slow
def test_methods_of_a_pytree_carry_its_leaves():
    model = Registered(1.0)
    first = skce_of(model.embed)
    model.w = 5.0
    assert skce_of(model.embed) == skce_of(lambda p: 5.0 * p.loc) != first

    def loss(w):
        distance = cj.EmbeddingDistance(Registered(w).embed)
        kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.GaussianKernel(1.0))
        return cj.skce(kernel, P, Y)

    assert jax.grad(loss)(1.0) != 0


@pytest.mark.parametrize("function", [Model(1.0), Model(1.0).embed], ids=["object", "method"])
def test_objects_that_may_change_are_refused(function):
    message = r"phi of EmbeddingDistance must not be .*Model.*Partial\(function, parameters\)"
    with pytest.raises(TypeError, match=message):
        skce_of(function)


@pytest.mark.slow
def test_frozen_objects_and_their_methods_are_accepted():
    expected = skce_of(lambda p: 2.0 * p.loc)
    assert skce_of(Frozen(2.0)) == skce_of(Frozen(2.0).embed) == expected
    assert skce_of(jax.jit(made_with(2.0))) == expected


def test_the_structure_can_be_copied():
    kernel = cj.DistanceKernel(cj.EmbeddingDistance(of_global), 2.0)
    leaves, treedef = jax.tree.flatten(kernel)
    copies = [copy.deepcopy(treedef), copy.copy(treedef)]
    try:
        copies.append(pickle.loads(pickle.dumps(treedef)))
    except ValueError:
        pass  # jax 0.10 pickles no structure with nodes of one's own
    for again in copies:
        assert again == treedef
        made = jax.tree.unflatten(again, leaves)
        assert made.lengthscale == 2.0 and made.distance.phi is of_global


@pytest.mark.slow
def test_functions_in_a_partial_and_in_lists():
    estimator = jax.tree_util.Partial(cj.skce, joint, unbiased=False)
    predictions = cj.Bernoulli(jnp.array([0.2, 0.5, 0.9]))
    result = cj.consistency_test(
        jax.random.key(0), estimator, predictions, jnp.array([0, 1, 1]), n_resamples=3
    )
    assert result.statistic == cj.skce(joint, predictions, jnp.array([0, 1, 1]), unbiased=False)
    assert result.statistic == cj.skce(
        Parts([joint, lambda a, b: 0.0]), predictions, jnp.array([0, 1, 1]), unbiased=False
    )


def joint(a, b):
    return jnp.exp(-jnp.square(a[0].probs - b[0].probs)) * jnp.where(a[1] == b[1], 1.0, 0.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Parts(cj.Kernel):
    parts: list

    def __call__(self, a, b):
        return sum(part(a, b) for part in self.parts)


def test_options_are_told_apart_by_type():
    def structure(flag):
        return jax.tree.structure(bind(jax.tree_util.Partial(joint, flag=flag)))

    assert structure(True) != structure(1) == structure(1)
    assert jax.tree.leaves(as_pytree([joint, 1.0])) == [1.0]
