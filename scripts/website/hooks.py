"""What MkDocs calls while it builds the site: generated pages, links to other folders, formulas.

Pages of ``docs/`` are read as they are. Pages about files outside of it (README, results, source
files that a page links to), the reference and the pages of the tutorials, whose scripts run, are
generated in memory; nothing is written but the site.
"""

import formulas
import line_breaks
import outside
import reference
import tutorials
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    assert config.nav is not None
    config.nav.insert(1, {"Tutorials": tutorials.navigation()})
    config.nav.insert(3, {"Reference": reference.navigation()})
    config.nav += [{"Results": outside.RESULTS}, {"Project": outside.PROJECT}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for target, source in outside.find_copies().items():
        files.append(File.generated(config, target, abs_src_path=str(source)))
    pages = outside.write_pages() | reference.write_pages() | tutorials.write_pages()
    for target, text in pages.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside of docs/ lead to their pages."""
    return outside.map_links(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write formulas as MathML, link pages and public names, and say where lines may be broken."""
    html = line_breaks.keep_numbers(formulas.write_mathml(html))
    return line_breaks.keep_names(reference.link_names(outside.link_names(html, page.url)))
