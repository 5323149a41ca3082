"""The order of the subpackages, and what every public name must have."""

import ast
import functools
import graphlib
import importlib
import inspect
import re
import tokenize
from pathlib import Path

import calibjax as cj
from calibjax import (
    curves,
    estimators,
    hypothesis_tests,
    intervals,
    recalibration,
    scores,
    segments,
)

PACKAGE = Path(cj.__file__).parent

# Imports point backwards in this list, or stay within a subpackage.
SUBPACKAGES = [
    "_base",
    "_numbers",
    "_loops",
    "_data",
    "kernels",
    "expectations",
    "distributions",
    "residuals",
    "discrepancy",
    "_pairwise",
    "features",
    "operators",
    "scores",
    "estimators",
    "nulls",
    "measures",
    "intervals",
    "hypothesis_tests",
    "segments",
    "recalibration",
    "monitoring",
    "curves",
    "frames",
    "plot",
    "evaluation",
    "sklearn",
    "hub",
    "cli",
    "__main__",
]


def subpackage(module):
    """The subpackage of a dotted module name, None outside of the package."""
    package, *path = module.split(".")
    return path[0] if package == "calibjax" and path else None


def imports(path):
    """Modules of the package that a file imports from, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                modules = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0, module="calibjax"):
                modules = [f"calibjax.{alias.name}" for alias in node.names]
            case ast.ImportFrom():
                assert node.level == 0, f"relative import in {path}"
                modules = [node.module]
            case _:
                continue
        for module in modules:
            assert module != "calibjax", f"{path} imports the package as a whole"
            if subpackage(module):
                yield module


SOURCES = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def test_imports_point_one_way():
    for path in SOURCES:
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in SUBPACKAGES, path
        for other in map(subpackage, imports(path)):
            assert SUBPACKAGES.index(other) <= SUBPACKAGES.index(own), (
                f"{path}: {own} imports {other}"
            )


def test_subpackages_know_each_other_by_public_names():
    for path in SOURCES:
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in imports(path):
            is_public = "._" not in module.removeprefix("calibjax._")
            assert subpackage(module) == own or is_public, f"{path} imports from {module}"


def test_modules_have_no_circle():
    parts = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in SOURCES)
    names = [".".join(x).removesuffix(".__init__") for x in parts]
    graph = {name: set() for name in names}
    for name, path in zip(names, SOURCES, strict=True):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and subpackage(node.module):
                # What is imported from a package may be one of its modules.
                found = {f"{node.module}.{alias.name}" for alias in node.names} & graph.keys()
                graph[name] |= found or {node.module}
    # Methods of an evaluation call functions that take one.
    graph["calibjax.evaluation._evaluation"] -= {x for x in graph if "._report." in x}
    # An error names the circle.
    graphlib.TopologicalSorter(graph).prepare()


def test_prose_names_what_is_there():
    """Files and private names that comments and docstrings name."""
    known = {part for path in SOURCES for part in path.with_suffix("").relative_to(PACKAGE).parts}
    prose = []
    for path in SOURCES:
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                known |= {token.string} if token.type == tokenize.NAME else set()
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    prose.append((path, token.string))
    for path, text in prose:
        for name in re.findall(r"[`(]([\w/]+\.py)\b", text):
            folders = PACKAGE, path.parent, PACKAGE.parent
            assert any((folder / name).exists() for folder in folders), f"{path} names {name}"
        for name in re.findall(r"[^`]`(_\w+)`", text):
            assert name in known, f"{path} names {name}"


PUBLIC = cj.__all__


def test_public_subpackages_are_attributes():
    for name in SUBPACKAGES:
        if not name.startswith("_") and name != "cli":
            assert name in dir(cj) and getattr(cj, name).__name__ == f"calibjax.{name}"


def test_subpackages_list_what_is_public():
    subpackages = [getattr(cj, name) for name in dir(cj) if hasattr(getattr(cj, name), "__all__")]
    assert len(subpackages) == 17
    for subpackage in subpackages:
        assert dir(subpackage) == sorted(subpackage.__all__) and all(
            hasattr(subpackage, x) for x in subpackage.__all__
        )
    listed = {name for subpackage in subpackages for name in subpackage.__all__}
    assert set(PUBLIC) - listed == {"Data", "Distribution", "IntervalCensored"}


def test_public_names_have_executable_examples():
    for name in PUBLIC:
        value = getattr(cj, name)
        doc = inspect.getdoc(value)
        assert doc and "Example" in doc and ">>>" in doc, f"{name} has no example"
        assert inspect.getmodule(value).__name__.startswith("calibjax."), name


def test_public_methods_have_docstrings():
    for name in PUBLIC:
        if inspect.isclass(getattr(cj, name)):
            for method, value in vars(getattr(cj, name)).items():
                if inspect.isfunction(value) and not method.startswith("_"):
                    assert inspect.getdoc(getattr(getattr(cj, name), method)), f"{name}.{method}"


def public_functions(module):
    members = vars(module).items()
    return [name for name, value in members if inspect.isfunction(value) and name in PUBLIC]


def test_signatures():
    subpackages = scores, estimators, intervals, hypothesis_tests, segments, recalibration, curves
    for subpackage in subpackages:
        for name in public_functions(subpackage):
            check_signature(name)


def check_signature(name):
    parameters = list(inspect.signature(getattr(cj, name)).parameters.values())
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = ["key", "kernel", "predictions", "targets"]
    given = [argument for argument in positional if argument in expected]
    assert given == [argument for argument in expected if argument in positional], name
    assert ("key" in positional) == (positional[0] == "key"), name
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            assert p.name == "rows", name
            continue
        assert p.kind is p.POSITIONAL_OR_KEYWORD or p.kind is p.KEYWORD_ONLY, name
        # `Data` has its targets; the method and the folds are what people change first.
        exceptions = [
            ("fit_recalibrator", "method"),
            ("cross_fit", "method"),
            ("cross_fit", "folds"),
            ("segment_test", "groups"),
            ("compare_groups", "groups"),
            ("one_vs_rest", "label"),
        ]
        if p.name != "targets" and (name, p.name) not in exceptions:
            assert (p.kind is p.KEYWORD_ONLY) == (p.default is not p.empty), (name, p.name)


def test_public_names_are_on_the_site():
    pages = (PACKAGE.parent / "docs" / "api").glob("*.md")
    found = [
        x for page in pages for x in re.findall(r"^\.\. auto\w+:: (\w+)", page.read_text(), re.M)
    ]
    assert sorted(found) == sorted(PUBLIC + cj.plot.__all__ + cj.hub.__all__ + cj.sklearn.__all__)


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").exists()


def test_what_docstrings_point_to_exists():
    importlib.import_module("calibjax.plot")  # a subpackage that is imported where it is used
    for name in PUBLIC:
        _, _, rest = inspect.getdoc(getattr(cj, name)).partition("See also:")
        for other in re.findall(r"`([\w.]+)`", rest.partition("Example:")[0]):
            path = other.removeprefix("calibjax.").split(".")
            assert functools.reduce(getattr, path, cj), f"{name}: {other}"


def test_parts_of_the_slow_tests_exist():
    tests = Path(__file__).parent
    parts = re.findall(r'\]="([^"]*)"', (tests.parent / ".ci/slow").read_text())
    names = " ".join(parts).split()
    assert names and [x for x in names if not (tests / f"test_{x}.py").exists()] == []
