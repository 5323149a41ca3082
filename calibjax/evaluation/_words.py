"""Names of classes in sentences, tables and pictures."""

from typing import Any


def class_name(classes: list[Any] | None, label: int) -> str:
    """The name of a class, or its number if classes have no names."""
    return f"class {label}" if classes is None else str(classes[label])
