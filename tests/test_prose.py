"""Pages, docstrings, comments and messages avoid turns of phrase that have to be read twice."""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    page for name in (".", "docs", "docs/api", "docs/book") for page in (ROOT / name).glob("*.md")
]
MODULES = sorted((ROOT / "calibjax").rglob("*.py"))
# What stands at the beginning of a sentence.
START = r"(?:^|[.:?!] +)"
TURNS = {
    "evaluate, score or assess": r"\bjudg(?:e|es|ed|ing)\b",
    "name the subject first": rf"{START}Of (?!course)",
    "is not a": r"\b(?:is|are|was|were) no (?!longer|more|less)\w+",
    "name the quantity": r"\b[Ss]o (?:many|much)\b(?! that)",
    "also": r", too[.,;:]",
    "again; fix; so that": r"\b(?:anew|mend|mends|mended|hence|thereby|therein|whereof)\b",
    "distribution": r"\b(?:laws|(?:same|null|joint|limit|normal|gamma) law)\b",
    "for display, for users": r"\b[Ff]or people\b|\bpeople (?:have|read|know|gave|need|set)\b",
    "no row, unknown": r"\bnobody\b",
    "a noun as subject": rf"{START}Who(?:ever)? ",
    "consists of, contains": r"\b(?:is|are) made of\b",
    "occurred, observed": r"\b(?:what|none|events?|targets?|class|outcomes?) (?:came|comes)\b",
    "checked, evaluated": r"\b(?:is|are|be|was|were) looked at\b",
}


def prose_of_page(path):
    """The text of a page without code."""
    text = re.sub(r"^ *```.*?^ *```|^---$.*?^---$", "", path.read_text("utf-8"), flags=re.M | re.S)
    return re.split(r"\n\n|\n[-*|] ", re.sub(r"`[^`]*`|<[^>]*>", "x", text))


def prose_of_module(path):
    """The strings and comments of a module, without examples."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"^ *(?:>>>|\.\.\. ).*$", "", node.value, flags=re.M)
            yield from re.split(r"\n\n", re.sub(r"`[^`]*`", "x", text))
    comments = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for k, token in enumerate(comments):
        # A comment of several lines is one text.
        follows = k > 0 and comments[k - 1].start[0] == token.start[0] - 1
        before = comments[k - 1].string if follows else ""
        yield f"{before} {token.string}".replace("#: ", "").replace("# ", "").strip()


@functools.cache
def texts():
    """All texts, each in one line, after its path."""
    found = [(path, text) for path in PAGES for text in prose_of_page(path)]
    found += [(path, text) for path in MODULES for text in prose_of_module(path)]
    return [(path.relative_to(ROOT), " ".join(text.split())) for path, text in found]


@pytest.mark.parametrize("instead", TURNS)
def test_turns_of_phrase(instead):
    found = [
        f"{path}: {text[max(0, turn.start() - 40) : turn.end() + 40]}"
        for path, text in texts()
        for turn in re.finditer(TURNS[instead], text)
    ]
    assert found == [], f"write: {instead}"
