"""The build fails if a public name of calibjax is not on the site, or is there twice."""

import inspect
from collections import Counter

from sphinx.errors import ExtensionError

import calibjax
import calibjax.plot


def public_names():
    """The full names of all public functions and classes, and of all pictures."""
    # The classes of `calibjax.plot` are figures, for other subpackages.
    for module, is_public in ((calibjax, callable), (calibjax.plot, inspect.isfunction)):
        for name, value in vars(module).items():
            if is_public(value) and not name.startswith("_") and _is_ours(value):
                yield f"{module.__name__}.{name}"


def _is_ours(value):
    return getattr(value, "__module__", "").startswith("calibjax.")


def check(app, env):
    documented = Counter(
        name for name, entry in env.domaindata["py"]["objects"].items() if not entry.aliased
    )
    missing = sorted(set(public_names()) - set(documented))
    if missing:
        raise ExtensionError(f"not on the site: {', '.join(missing)}")


def setup(app):
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
