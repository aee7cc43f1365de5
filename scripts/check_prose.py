"""List words that are hard to understand, with what to write instead; exit code 1 if any is found.

python scripts/check_prose.py [PATH ...]      default: the whole repository

It reads Python (comments, strings and names), Markdown (without `code`) and templates. Where one of
the words is right, add the phrase to ALLOWED.
"""

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("src", "docs", "tests", "scripts", "perf", "results", "README.md", "ARCHITECTURE.md",
          "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")  # fmt: skip
SUFFIXES = {".py", ".md", ".sh", ".toml", ".j2", ".css", ""}

# Regular expression of a word -> what to write instead.
WORDS = {
    r"(goes|go|going|went) on": "resumes, continues",
    r"(taken|takes|took) up (again|where|the same)": "resumed",
    r"(came|comes?|coming) out": "is, is classified as, was correct",
    r"strange\w*": "out-of-class images, outlier, unknown",
    r"newcomers?": "new images",
    r"passed over": "skipped",
    r"(dealt|deals?|dealing) out": "sharded, distributed",
    r"put back": "gathered",
    r"piles?": "unlabelled images, image pool",
    r"in words": "as text",
    r"all the same(?=[.,;:)])": "cut it",
    r"and the like": "cut it",
    r"for(ever| ever)": "does not converge, indefinitely",
    r"never ends": "does not converge",
    r"told": "given, notified",
    r"rehears\w*": "trial solve",
    r"uneven\w*": "imbalanced, imbalance",
    r"by (itself|themselves)": "independently, automatically",
    r"calm\w*": "smooth",
    r"no news": "raises AssertionError on failure",
    r"(keeps?|kept) (its|their|the) (word|promises?)": "is calibrated, holds",
    r"measured are": "we measured",
    r"settings are others": "the settings differ",
    r"(is|are) of another": "differs, belongs to another",
    r"house rules?": "rules",
    r"rooms?(?! for)": "package, module",
    r"faces?": "interface",
    r"doors?": "entry point",
    r"what is there": "name the content",
    r"looked(?! up)": "checked, read",
    r"going down": "power loss",
    r"swallow\w*": "collapse, absorb",
    r"witness\w*": "statistic, evidence",
    r"too (un)?sure": "overconfident, underconfident",
    r"some(?= \d)": "about",
    r"how far it is": "progress",
}
GAP = r"[\s_#]+"  # between two words: a space, the end of a line, or "_" in a name
PATTERNS = {
    re.compile(rf"(?<![A-Za-z]){word.replace(' ', GAP)}(?![A-Za-z])", re.I): instead
    for word, instead in WORDS.items()
}

# Phrases in which a word above is right: public names.
ALLOWED = re.compile(r"n_rehearsal_steps|Hugging Face|serve_forever")


def files(paths: list[Path]) -> list[Path]:
    """All files to check, in order; this one lists the words and is left out."""
    found = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))}
    return sorted(
        file for file in found
        if file.is_file() and file.suffix in SUFFIXES and file != Path(__file__).resolve()
    )  # fmt: skip


def hits(file: Path) -> list[str]:
    """One line for every word found in a file, in order."""
    text = file.read_text(errors="ignore")
    code = re.compile(r"`[^`\n]+`")
    for pattern in (ALLOWED, code) if file.suffix == ".md" else (ALLOWED,):
        text = pattern.sub("...", text)
    found = []
    for pattern, instead in PATTERNS.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append((line, " ".join(match[0].split()), instead))
    name = file.relative_to(ROOT)
    return [f"{name}:{line}: '{word}': {instead}" for line, word, instead in sorted(found)]


def main() -> int:
    """Print every hit and the number of hits per folder."""
    paths = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / name for name in PLACES]
    found = [hit for file in files(paths) for hit in hits(file)]
    places = (Path(hit.split(":")[0]) for hit in found)
    counts = Counter("/".join(place.parts[:3][: max(1, len(place.parts) - 1)]) for place in places)
    for line in found + [f"{n:5} in {place}" for place, n in sorted(counts.items())]:
        sys.stdout.write(line + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
