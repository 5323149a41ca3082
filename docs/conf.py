"""How the site is built: `python -m sphinx -W --keep-going -j 2 docs docs/_build`."""

import os
import re
import sys
from pathlib import Path

import jax
from docutils import nodes

import calibjax

HERE = Path(__file__).parent
# Pages and pictures compile the same programs again and again: each is compiled once.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE / "_build" / ".jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time of a page is compilation, most of that optimisations of machine code, which its
# small examples do not repay.  Later versions of XLA do not know the second flag, and abort.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS", "0")
SIMPLE_CODE = "--xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):
    SIMPLE_CODE += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", SIMPLE_CODE)

project = "calibjax"
author = "the authors of calibjax"
project_copyright = author
version = release = calibjax.__version__

sys.path.insert(0, str(HERE / "_ext"))

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "calibjax_coverage",
]
exclude_patterns = [
    "_build",
    "jupyter_execute",
    "gallery",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
    "pictures/**/*.ipynb",
]

source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
# Pages of benchmarks begin their tables with small headings.
suppress_warnings = ["myst.header"]
# Links to sections of other pages.
myst_heading_anchors = 2
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
# A default that is a module is a path of the machine that built the site.
autodoc_preserve_defaults = True
default_role = "py:obj"
# The contents beside an API page are narrow.
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "pictures",
    "filename_pattern": r"\.py$",
    "subsection_order": [f"gallery/{x}" for x in ("classes", "numbers", "tests", "errors")],
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "gallery_style.reset"),
    "capture_repr": (),
    "abort_on_example_error": True,
    # In processes of their own: this one forks when it reads pages, which JAX does not survive.
    "parallel": 2,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
}

html_theme = "sphinx_book_theme"
html_title = "calibjax"
html_static_path = ["_static"]
html_css_files = ["calibjax.css"]
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    # The search of the side bar is enough.
    "navbar_persistent": [],
}


def escape_bars(app, what, name, obj, options, lines):
    """Docstrings write |x| for a norm, which would be a substitution."""
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``|`[^`]*`)", line)
        lines[i] = "".join(
            part if part.startswith("`") else re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts
        )


def keep_colons(app, what, name, obj, options, lines):
    """Napoleon takes what stands before a colon in the first line of an attribute for its type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, for its first line


def keep_units(app, doctree):
    """No line of a text begins with the unit of the number before it."""
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.FixedTextElement | nodes.literal | nodes.math):
            kept = re.sub(r"(?<=\d) (?=(%|±|ms|s|MB|kB)(?!\w))", "\N{NO-BREAK SPACE}", text)
            if kept != text:
                text.parent.replace(text, nodes.Text(kept))


def include_readmes():
    """Pages that are made of files elsewhere, with links to what is not on the site as words."""
    pages = {"papers": "examples/papers/README.md", "benchmarks": "benchmarks/README.md"}
    measured = (
        "POWER",
        "PIT",
        "LEVELS",
        "INTERVALS",
        "SURVIVAL",
        "DEPENDENCE",
        "RECALIBRATION",
        "SEGMENTS",
        "VERDICTS",
        "COVARIATES",
        "COMPARISON",
        "MONITOR",
        "WARM_UP",
        "PENALTIES",
        "REMEDIES",
        "GPU",
        "MANY_ROWS",
    )
    pages |= {name.lower(): f"benchmarks/{name}.md" for name in measured}
    on_site = {f"{name}.md": f"{name.lower()}.md" for name in measured}
    (HERE / "generated").mkdir(exist_ok=True)
    for name, path in pages.items():
        text = (HERE.parent / path).read_text()
        folder = os.path.relpath(HERE.parent / Path(path).parent, HERE / "generated")
        text = re.sub(r"!\[([^]]*)\]\((?!http)", rf"![\1]({folder}/", text)

        def linked(match):
            words, target = match.groups()
            return f"[{words}]({on_site[target]})" if target in on_site else words

        text = re.sub(r"(?<!!)\[([^]]*)\]\((?!http)([^)]*)\)", linked, text)
        if name == "benchmarks":
            tree = "\n".join(name.lower() for name in measured)
            text += f"\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
        (HERE / "generated" / f"{name}.md").write_text(text)


def setup(app):
    include_readmes()
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before napoleon
    app.connect("doctree-read", keep_units)
