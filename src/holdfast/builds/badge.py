"""The badge of a project: a small SVG with how its last build ended."""

from xml.sax.saxutils import escape

from holdfast.builds.build import Build

COLOURS = {"success": "#2a7d3f", "failed": "#b3261e", "error": "#8a4fbe", "aborted": "#6b6b6b", "building": "#9a6700"}
GREY = "#6b6b6b"
LETTER = 7  # pixels, about
FORM = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {word}">
<title>{label}: {word}</title>
<rect width="{left}" height="20" rx="3" fill="#444"/>
<rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left_middle}" y="14">{label}</text>
<text x="{right_middle}" y="14">{word}</text>
</g>
</svg>
"""


def badge(label: str, build: Build | None) -> str:
    """For the last build that says something; None if there is none yet."""
    word = "unknown" if build is None else "building" if build.outcome is None else build.outcome.value
    left, right = 12 + LETTER * len(label), 12 + LETTER * len(word)
    return FORM.format(
        label=escape(label, {'"': "&quot;"}),
        word=word,
        colour=COLOURS.get(word, GREY),
        left=left,
        right=right,
        width=left + right,
        left_middle=left / 2,
        right_middle=left + right / 2,
    )
