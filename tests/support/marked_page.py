"""Reads a Markdown page that a suite follows: its fenced blocks and its instructions, in their order. Knows nothing about processes.

A fenced block has words after its language, which no reader of the rendered page sees: `terminal=NAME`, `file=NAME`, `download`. An
instruction is a comment of one line, `<!-- browser open http://127.0.0.1:8080/ -->` or `<!-- setup: COMMAND -->`. The suites `tutorials`,
`guides` and `sources` use it; each defines the words that it understands.
"""

import re
import shlex

# A page that takes ten minutes is not longer.
WORDS = 1500
OPENING = re.compile(r"( *)```([^`]*)")
INSTRUCTION = re.compile(r"<!-- (\w+):? (.*) -->")
# A figure with its unit, in a column perhaps.
NUMBER = re.compile(r"[ ]*-?\d[\d,.]*(?:[ ]?(?:ns|[µu]s|ms|s|[kMG]?B/s|[kMG]?B|%)(?!\w))?")


class PageError(Exception):
    """The page breaks its own rules; the text names the line."""


class Step:
    """A fenced block or an instruction.

    `kind` is the language of a block, or the first word of an instruction, and `rest` the remainder of that line. `lines` are those between
    the fences of a block, without its indentation `indent`. `line` is the number of the first line, `end` that of the last one, from 1.
    """

    def __init__(self, kind, rest, line, end, lines=(), indent=""):
        self.kind, self.rest, self.line, self.end, self.lines, self.indent = kind, rest, line, end, list(lines), indent

    @property
    def text(self):
        """The lines of a block, without a line break at the end."""
        return "\n".join(self.lines)

    @property
    def is_block(self):
        """True of a fenced block."""
        return self.end > self.line

    @property
    def words(self):
        """The words after the kind. Those of an instruction may be quoted as in a shell."""
        return self.rest.split() if self.is_block else shlex.split(self.rest)

    @property
    def named(self):
        """The values of words by their names. The value of a word without `=` is empty."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words)}


def steps(name, text, instructions=()):
    """Returns the steps of a page with this text: its blocks, and the instructions of these kinds. `name` is for errors."""
    found, opening, start = [], None, 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if opening is None:
            start, opening = number, OPENING.fullmatch(line)
            instruction = INSTRUCTION.fullmatch(line)
            if instruction and instruction[1] in instructions:
                found.append(Step(instruction[1], instruction[2], number, number))
        elif line == f"{opening[1]}```":
            kind, _, rest = opening[2].strip().partition(" ")
            body = [inner.removeprefix(opening[1]) for inner in lines[start:number - 1]]
            found.append(Step(kind, rest.strip(), start, number, body, opening[1]))
            opening = None
    if opening:
        raise PageError(f"{name}:{start}: the block is not closed")
    return found


def steps_of(path, instructions=()):
    """Returns the steps of the page in a file."""
    return steps(path.name, path.read_text(), instructions)


def words(path):
    """Returns the number of words that a reader of the rendered page sees."""
    return len(re.sub(r"<!--.*?-->", "", path.read_text(), flags=re.DOTALL).split())


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
