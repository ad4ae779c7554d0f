"""Reads a tutorial: its fenced blocks and its instructions, in their order. Knows nothing about processes.

A fenced block has words after its language, which no reader of the rendered page sees: `terminal=NAME`, `file=NAME`, `download`. An
instruction is a comment of one line, `<!-- browser open http://127.0.0.1:8080/ -->`.
"""

import re
import shlex

# A page that takes ten minutes is not longer.
WORDS = 1500
INSTRUCTIONS = ("browser",)
# A figure with its unit, in a column perhaps.
NUMBER = re.compile(r"[ ]*-?\d[\d,.]*(?:[ ]?(?:ns|[µu]s|ms|s|[kMG]?B/s|[kMG]?B|%)(?!\w))?")


class PageError(Exception):
    """The page breaks its own rules; the text names the line."""


class Step:
    """A fenced block or an instruction: its kind, the words after it, its text, and the line on which it starts."""

    def __init__(self, kind, words, text, line):
        self.kind, self.text, self.line = kind, text, line
        self.words = words
        self.named = {name: value for name, _, value in (word.partition("=") for word in words)}


def steps(page):
    """Returns the steps of a page."""
    found, fence, lines = [], None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        instruction = re.fullmatch(r"<!-- (\w+) (.*) -->", line)
        if fence is None and line.startswith("```"):
            fence, lines = (line[3:], number), []
        elif line == "```":
            kind, *words = fence[0].split() or [""]
            found.append(Step(kind, words, "\n".join(lines), fence[1]))
            fence = None
        elif fence:
            lines.append(line)
        elif instruction and instruction[1] in INSTRUCTIONS:
            found.append(Step(instruction[1], shlex.split(instruction[2]), "", number))
    if fence:
        raise PageError(f"{page.name}:{fence[1]}: the block is not closed")
    return found


def words(page):
    """Returns the number of words that a reader sees."""
    return len(re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL).split())


def match_lines(output, wanted, varies=False):
    """Returns the position behind the lines of a page in an output that has them in this order, else None.

    `…` in a line of the page represents any text, and a line that consists of it any lines. With `varies` each number of the page, its unit
    and the blanks around it represent any other.
    """
    position = 0
    for line in wanted.splitlines():
        if line.strip() in ("", "…"):
            continue
        found = re.compile(rf"^{line_pattern(line.rstrip(), varies)}[ \t\r]*$", re.MULTILINE).search(output, position)
        if found is None:
            return None
        position = found.end()
    return position


def line_pattern(line, varies):
    """Returns the expression for a line of a page."""
    parts = []
    for text in line.split("…"):
        pieces = NUMBER.split(text) if varies else [text]
        parts.append(NUMBER.pattern.join(re.escape(piece) for piece in pieces))
    return "[^\n]*".join(parts)
