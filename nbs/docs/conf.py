"""How Sphinx makes the site: nothing is run, nothing is fetched, and what is odd is an error (`build.py`)."""
import re
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml

import evolora

project, author, copyright = 'evolora', 'the evolora founders', '2026, the evolora founders'
version = release = evolora.__version__
extensions = ['myst_nb']
root_doc = 'index'
exclude_patterns = []

# Notebooks are shown as they were saved. A saved chart has a picture beside its specification, and that is taken.
nb_execution_mode = 'off'
nb_ipywidgets_js = {}           # comes from a network otherwise; no saved output has a live widget
nb_number_source_lines = False
nb_render_markdown_format = 'myst'      # a saved claim may be a table
myst_enable_extensions = ['dollarmath', 'deflist', 'html_image', 'attrs_inline']
myst_heading_anchors = 4
nitpicky = False
suppress_warnings = [
    'myst.header',              # a notebook may go from # to ###, where a part of it has no heading of its own
    'misc.highlighting_failure',        # error messages and runs of a terminal stand in blocks that look like Python
]

html_theme = 'pydata_sphinx_theme'
html_title = 'evolora'
html_show_sourcelink = False
html_copy_source = False
html_theme_options = dict(show_nav_level=1, navigation_depth=2, show_toc_level=2, secondary_sidebar_items=['page-toc'],
                          navbar_align='left', header_links_before_dropdown=7, footer_start=['copyright'],
                          footer_end=[], search_as_you_type=False)
# Nothing is below these pages.
html_sidebars = {name: [] for name in ('index', 'called', 'nbs/index', 'nbs/howto', 'nbs/results')}
html_math_renderer = 'mathml'
html_search_scorer = str(Path(__file__).with_name('scorer.js'))
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries = False      # each public name is a heading already


# LaTeX that docutils does not read, as LaTeX that it reads: brackets grow by themselves in MathML.
SPELLED = {r'\\[bB]igg?[lr]?(?![A-Za-z])': '', r'\\dots(?![A-Za-z])': r'\\ldots', '½': r'\\tfrac{1}{2}',
           r'\\fbox\{\$(.*?)\$\}': r'[\1]'}


def formula(node, block: bool) -> str:
    "LaTeX as MathML, which browsers draw without a script from somewhere"
    text = node.astext()
    for written, read in SPELLED.items(): text = re.sub(written, read, text)
    try: return latex2mathml.tex2mathml(text, as_block=block)
    except latex2mathml.MathError as e:
        raise ValueError(f'expected a formula that docutils reads, got {text!r:.60} ({e}); say it in simpler '
                         'LaTeX') from None


def inline(translator, node):
    translator.body.append(formula(node, False))
    raise SkipNode


def block(translator, node):
    translator.body.append(f'<div class="math">{formula(node, True)}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer('mathml', inline_renderers=(inline, None), block_renderers=(block, None))
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
