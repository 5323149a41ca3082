"""What the pages of the site point to exists: files, names in them, and public names."""

import importlib
import pkgutil
import re
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, PAGES = ROOT / "calibjax", ROOT / "docs"
CODE = re.findall(r"^\*Code:\*.*?(?=\n\n)", (PAGES / "theory.md").read_text(), re.S | re.M)
# Pages of benchmarks and pictures are made when the site is built.
SOURCES = [
    path
    for path in sorted(PAGES.rglob("*"))
    if path.suffix in (".md", ".py", ".rst")
    and path.relative_to(PAGES).parts[0] not in ("_build", "generated", "pictures")
]


@pytest.mark.parametrize("line", CODE)
def test_code_of_the_theory_exists(line):
    folder, files, names = PurePosixPath(), [], []
    for word in re.findall("`(.*?)`", line):
        if word.endswith("/"):
            assert (PACKAGE / word).is_dir(), word
        elif word.endswith(".py"):
            # `_b.py` after `subpackage/_a.py` is in the same subpackage.
            path = PurePosixPath(word)
            folder = path.parent if path.parts[1:] else folder
            files.append(PACKAGE / folder / path.name)
            assert files[-1].exists(), word
        else:
            names.append(word)
    text = "".join(file.read_text() for file in files)
    assert all(re.search(rf"\b(def|class) {name}\b", text) for name in names), names


def test_every_section_of_the_theory_names_its_code():
    assert len(CODE) >= 10


def test_public_names_that_pages_link_exist():
    importlib.import_module("calibjax.plot")  # a subpackage that is imported where it is used
    links = r"[:{](?:func|class|meth|attr)[:}]`[^`<]*?<?~?calibjax\.([\w.]+)>?`"
    for page in SOURCES:
        for name in re.findall(links, page.read_text()):
            assert pkgutil.resolve_name(f"calibjax.{name}"), f"{page.name}: {name}"
