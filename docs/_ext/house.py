"""The picture of the code: the subpackages of `calibjax/`, each above all that it imports."""

import ast
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import calibjax


def subpackages(package: Path) -> dict[str, set[str]]:
    """Each file and folder of the package, and which others its code imports from."""
    found: dict[str, set[str]] = {}
    for file in sorted([*package.rglob("*.py"), package / "__init__.pyi"]):
        subpackage = file.relative_to(package).parts[0].partition(".")[0]
        modules = [
            node.module.split(".")
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calibjax.")
        ]
        found.setdefault(subpackage, set()).update(module[1] for module in modules)
    return {subpackage: below - {subpackage} for subpackage, below in found.items()}


def floors(below: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each subpackage: one above the highest subpackage that it imports from."""

    def floor(subpackage: str) -> int:
        return 1 + max((floor(other) for other in below[subpackage]), default=0)

    return {subpackage: floor(subpackage) for subpackage in below}


def draw() -> Figure:
    """The floors of the installed package from the ground up, subpackages side by side."""
    found = floors(subpackages(Path(calibjax.__file__).parent))
    height = max(found.values())
    figure, axes = plt.subplots(figsize=(7, 0.42 * height))
    for floor in range(1, height + 1):
        names = sorted(subpackage for subpackage, level in found.items() if level == floor)
        for k, name in enumerate(names):
            box = dict(boxstyle="round", facecolor="white", edgecolor="0.4")
            axes.text((k + 0.5) / len(names), floor, name, ha="center", va="center", bbox=box)
    axes.set(xlim=(0, 1), ylim=(0.3, height + 0.7))
    axes.axis("off")
    return figure
