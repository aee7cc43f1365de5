"""Where lines of a page may be broken: on a phone, numbers and names in tables are narrow."""

import re

_CODE = re.compile(r"(?<!</span>)(?<!<pre>)<code>([^<]*)</code>")
_CODE_AND_TAGS = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<[^>]*>)", re.DOTALL)
_SPACE = re.compile(
    r" (?=± )|(?<=±) |(?<=\d) (?=/ [+\u2212-]?\d)|(?<=\d /) (?=[+\u2212-]?\d)|(?<=\d) (?=%)"
)
_LONGEST_KEPT = 24
_SHORTEST_BROKEN = 15
_LONG = 20


def keep_numbers(html: str) -> str:
    """Do not break lines within intervals, pairs of numbers and percentages, but leave code."""
    parts = _CODE_AND_TAGS.split(html)
    parts[::2] = [_SPACE.sub("\u00a0", part) for part in parts[::2]]
    return "".join(parts)


def keep_names(html: str) -> str:
    """Do not break ``--add`` at its hyphens, and long names only after punctuation."""
    return _CODE.sub(_keep_names, html)


def _keep_names(code: re.Match[str]) -> str:
    return f"<code>{re.sub('[^ ]+', lambda name: _keep_name(name[0]), code[1])}</code>"


def _keep_name(name: str) -> str:
    if "-" in name and len(name) <= _LONGEST_KEPT:
        return f'<span class="name">{name}</span>'
    if len(name) >= _SHORTEST_BROKEN:
        places = r"[.,/=(|:_]" if len(name) >= _LONG else r"[.,/=(|:]"
        return re.sub(places + r"(?=\w{3})", r"\g<0><wbr>", name)
    return name
