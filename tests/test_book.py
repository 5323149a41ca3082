"""Pages of the book of real data that the site does not run: their code prints what they show."""

import contextlib
import io
import re
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[1] / "docs" / "book"


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (BOOK / page).read_text(), re.S | re.M)


def _printed(page: str) -> str:
    """What the Python blocks of a page print, one after the other, as one program."""
    printed = io.StringIO()
    namespace: dict = {}
    with contextlib.redirect_stdout(printed):
        for block in _blocks(page, "python"):
            exec(compile(block, page, "exec"), namespace)
    return printed.getvalue()


def _check(page: str) -> None:
    shown = [block.strip() for block in _blocks(page, "text")]
    printed = _printed(page)
    pieces = [block for block in shown if block in printed]
    assert "\n".join(pieces).split() == printed.split()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["flares.md", "flu.md", "epidemic.md"])
def test_pages_show_what_their_code_prints(page, monkeypatch):
    monkeypatch.chdir(BOOK)
    _check(page)


@pytest.mark.slow
def test_the_page_of_networks_shows_what_its_code_prints(reference_folder):
    _check("networks.md")


def test_files_of_the_book_name_their_licences():
    named = (BOOK / "data" / "LICENCES.txt").read_text()
    for path in (BOOK / "data").iterdir():
        assert path.name == "LICENCES.txt" or path.name in named
