"""Formulas as MathML, which browsers show without a script."""

import html
import re
from functools import cache
from itertools import cycle

from latex2mathml.converter import convert

# What pymdownx.arithmatex makes of $...$ and $$...$$.
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_BAR = re.compile(r"<mo[^>]*>(&#x0007C;|&#x02016;)</mo>")  # of an absolute value or a norm


def write_mathml(page: str) -> str:
    """Replace every formula of an HTML page."""
    return _FORMULA.sub(_replace, page)


def _replace(match: re.Match[str]) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    formula = _convert(html.unescape(match["latex"]).strip(), display)
    return f'<{match["tag"]} class="formula">{formula}</{match["tag"]}>'


@cache
def _convert(latex: str, display: str) -> str:
    latex = re.sub(r"\\mathbf (\w)", r"\\mathbf{\1}", latex)
    formula = convert(latex.replace(r"\arg\m", r"\operatorname{arg}\m"), display=display)
    forms = cycle(("prefix", "postfix"))
    return _BAR.sub(
        lambda match: f'<mo form="{next(forms)}" stretchy="false">{match[1]}</mo>', formula
    )
