"""The site: its pages are the Markdown files of this repository where they lie, and a reference that is generated.

The source folder is the repository, so that links between pages are those that a checkout has; `.ci/site` builds it.
"""

import functools
import html
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.matching import patmatch

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]

import command_pages  # noqa: E402
import name_pages  # noqa: E402

import drjax  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"] + "/blob/main"

project = "drjax"
author = copyright = PROJECT["authors"][0]["name"]
version = release = drjax.__version__
language = "en"

root_doc = "docs/index"
include_patterns = ["docs/**", "experiments/**/README.md", "bench/README.md", "*.md"]
exclude_patterns = [
    "build",
    "dist",
    "runs",
    "tests",
    "drjax",
    "**/.*",
    ".*",
    "docs/_*",
    "**/__pycache__",
    "**/node_modules",
    "**/*.egg-info",
]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 6
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header"]  # a README may begin at any level
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
add_module_names = False
default_role = "py:obj"
smartquotes = False  # quotes in the pages are meant as they are
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"drjax {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
templates_path = ["_templates"]
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"

TREE = {
    "Start here": ("docs/start/owner", "docs/start/researcher", "docs/start/engineer", "docs/start/*"),
    "Tutorials": (
        "docs/tutorials/patients",
        "docs/tutorials/scikit_map",
        "docs/tutorials/scikit_network",
        "docs/tutorials/synthetic_table",
        "docs/tutorials/sweep",
        "docs/tutorials/*",
    ),
    "How to": (
        "docs/tables",
        "docs/tables/*",
        "docs/audit",
        "docs/audit/*",
        "docs/defenses",
        "docs/defenses/*",
        "docs/release",
        "docs/release/*",
        "docs/models",
        "docs/models/*",
        "docs/membership",
        "docs/property",
        "docs/property/*",
        "docs/scale",
        "docs/scale/*",
        "docs/sweeps",
        "docs/python",
        "docs/sklearn",
    ),
    "Explanations": (
        "docs/explain/threat_models",
        "docs/explain/leak_pca",
        "docs/explain/*",
        "docs/threat_model",
        "docs/concepts",
        "docs/concepts/*",
        "docs/adversaries",
        "docs/adversaries/*",
        "docs/bounds",
        "docs/bounds/*",
        "docs/leak",
    ),
    "Results": (
        "docs/results",
        "docs/results/*",
        "experiments/*/README",
        "experiments/*/*/README",
        "bench/README",
    ),
    "Reference": ("docs/reference/*", "docs/reference/commands/*", "docs/reference/api/*"),
    "Gallery": ("docs/gallery",),
    "Compare": ("docs/compare", "docs/compare/*"),
    "Questions and terms": ("docs/faq", "docs/glossary"),
    "For experts": (
        "docs/attacks",
        "docs/attacks/*",
        "docs/dp_pca",
        "docs/dp_pca/*",
        "docs/synthesis",
        "docs/synthesis/*",
        "docs/kernels",
        "docs/kernels/*",
    ),
    "The project": ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG"),
}
"""Pages by section, as names or patterns; a pattern adds those that no earlier one has, by name.

A name may be of no page.
"""

PLACES = {"commands": command_pages, "api": name_pages}
"""Folders of docs/reference whose pages are generated, and what generates them."""


def generate(app):
    """Writes the pages of the reference that are generated, and takes away those that are of another time."""
    for folder, generator in PLACES.items():
        ending = ".rst" if generator is name_pages else ".md"
        texts = {f"{name}{ending}": text for name, text in generator.pages().items()}
        place = DOCS / "reference" / folder
        place.mkdir(exist_ok=True)
        for stale in {file.name for file in place.iterdir()} - set(texts):
            (place / stale).unlink()
        for name, text in texts.items():
            # Pages that have not changed are not built again.
            if not (place / name).exists() or (place / name).read_text(encoding="utf-8") != text:
                (place / name).write_text(text, encoding="utf-8")


def sections(found):
    """The pages of each section of the site, of those that there are; each page is in one section."""
    left = sorted(found)
    for title, patterns in TREE.items():
        pages = []
        for pattern in patterns:
            pages += sorted(
                (name for name in left if patmatch(name, pattern) and name not in pages),
                key=lambda name: (not name.endswith("/index"), name),
            )
        left = [name for name in left if name not in pages]
        if pages:
            yield title, pages


def add_tree(app, docname, source):
    """Adds what is in the side bar to the first page; in the file itself it would be noise to readers of the text."""
    if docname == root_doc:
        for title, pages in sections(app.env.found_docs - {root_doc}):
            listed = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


def quick_tree(app, pagename, templatename, context, doctree):
    """Gives the theme the tree of pages in its own form: Sphinx's copies all headings for it, on every page anew."""
    uri = functools.partial(app.builder.get_relative_uri, pagename)

    def entry(name):
        words = html.escape(app.env.titles[name].astext())
        is_here = name == pagename
        return (
            f'<li class="toctree-l1{" current" * is_here}"><a class="{"current " * is_here}reference internal" '
            f'href="{"#" if is_here else uri(name)}">{words}</a></li>'
        )

    parts = ["<ul>" + entry(root_doc) + "</ul>"]
    for title, pages in sections(app.env.found_docs - {root_doc}):
        entries = "".join(map(entry, pages))
        caption = f'<p class="caption"><span class="caption-text">{title}</span></p>'
        parts.append(f"{caption}<ul>{entries}</ul>")
    context["toctree"] = lambda **_: "".join(parts)
    # A third of the weight of a page of the reference: these elements only keep words from being broken.
    context["body"] = re.sub(r'<span class="pre">([^<]*)</span>', r"\1", context.get("body", ""))


class FileLinks(SphinxPostTransform):
    """Links to Markdown files that are no pages lead to the repository, by the address in pyproject.toml."""

    default_priority = 5  # before MyST resolves links

    def run(self, **_):
        """Replaces them in one page."""
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = node["reftarget"]
            if node.get("refdomain") == "doc" and target not in self.env.found_docs:
                node.replace_self(nodes.reference("", "", *node.children, refuri=f"{REPOSITORY}/{target}.md"))


class Colons(SphinxTransform):
    """What follows the name and type of an argument comes after a colon, not after two hyphens."""

    default_priority = 800

    def apply(self, **_):
        """Replaces them in one page."""
        for body in self.document.findall(nodes.field_body):
            for text in list(body.findall(nodes.Text)):
                if text.startswith(" -- "):
                    text.parent.replace(text, nodes.Text(f": {text.removeprefix(' -- ')}"))


def write_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text with Google's headings; those of constants stand below them."""
    lines[:] = name_pages.as_text(name_pages.said_of(name, obj) if what == "data" else lines)


def skip(app, what, name, obj, is_skipped, options):
    """Fields are described by their class; some methods are scikit-learn's."""
    is_method = callable(obj) or isinstance(obj, property | classmethod | staticmethod)
    return True if not is_method or re.fullmatch(r"set_\w+_request", name) else None


def without_link(app, env, node, contnode):
    """A name in backticks that is no public name of drjax stays a name; so do types of other packages."""
    return contnode if node.get("refdomain") == "py" else None


MENDED = (
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<th class="head"><p></p></th>', '<td class="head"></td>'),
    ('<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
)
"""What readers without a pointer or without sight lack in the theme's pages, and what they get."""


ENTRY = f"""<!doctype html>
<html lang="en">
<head><title>drjax</title><meta http-equiv="refresh" content="0; url={root_doc}.html"></head>
<body><main><h1>drjax</h1><p><a href="{root_doc}.html">The documentation of drjax</a></p></main></body>
</html>
"""
"""Page at the root of the site, which leads to the first one."""


def mend(app, exception):
    """Mends all pages."""
    if exception is None and app.builder.format == "html":
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            for lacking, mended in MENDED:
                text = text.replace(lacking, mended)
            page.write_text(text, encoding="utf-8")
        # A site is entered at its root; the pages lie where they lie in the repository.
        (Path(app.outdir) / "index.html").write_text(ENTRY, encoding="utf-8")


def setup(app):
    """Registers the above."""
    app.connect("builder-inited", generate)
    app.connect("source-read", add_tree)
    app.connect("autodoc-process-docstring", write_docstring, priority=400)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", without_link)
    app.connect("html-page-context", quick_tree, priority=400)
    app.connect("build-finished", mend)
    app.add_post_transform(FileLinks)
    app.add_transform(Colons)
