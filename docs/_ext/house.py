"""The picture of the house: the rooms of `calibjax/`, each above all that it imports."""

import ast
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import calibjax


def rooms(package: Path) -> dict[str, set[str]]:
    """Each file and folder of the package, and which others its code imports from."""
    found: dict[str, set[str]] = {}
    for file in sorted([*package.rglob("*.py"), package / "__init__.pyi"]):
        room = file.relative_to(package).parts[0].partition(".")[0]
        modules = [
            node.module.split(".")
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calibjax.")
        ]
        found.setdefault(room, set()).update(module[1] for module in modules)
    return {room: below - {room} for room, below in found.items()}


def floors(below: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each room: one above the highest room that it imports from."""

    def floor(room: str) -> int:
        return 1 + max((floor(other) for other in below[room]), default=0)

    return {room: floor(room) for room in below}


def draw() -> Figure:
    """The floors of the installed package from the ground up, rooms side by side."""
    found = floors(rooms(Path(calibjax.__file__).parent))
    height = max(found.values())
    figure, axes = plt.subplots(figsize=(7, 0.42 * height))
    for floor in range(1, height + 1):
        names = sorted(room for room, level in found.items() if level == floor)
        for k, name in enumerate(names):
            box = dict(boxstyle="round", facecolor="white", edgecolor="0.4")
            axes.text((k + 0.5) / len(names), floor, name, ha="center", va="center", bbox=box)
    axes.set(xlim=(0, 1), ylim=(0.3, height + 0.7))
    axes.axis("off")
    return figure
