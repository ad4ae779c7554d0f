"""The reading of pages: steps, and the comparison of outputs. `python3 -m unittest discover -s tests/tutorials`."""

import pathlib
import tempfile
import unittest

import page
import run


def steps_of(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.md"
        path.write_text(text)
        return page.steps(path)


class Steps(unittest.TestCase):
    def test_blocks_and_instructions_are_steps(self):
        found = steps_of("Text.\n\n```sh terminal=server\nring\n```\n\n<!-- a remark -->\n<!-- browser expect \"#x y\" '\\d' -->\n")
        self.assertEqual([(step.kind, step.words, step.line) for step in found],
                         [("sh", ["terminal=server"], 3), ("browser", ["expect", "#x y", "\\d"], 8)])
        self.assertEqual((found[0].named["terminal"], found[0].text), ("server", "ring"))

    def test_an_instruction_in_a_block_is_text(self):
        found = steps_of("```html file=a.html\n<!-- browser open x -->\n```\n")
        self.assertEqual([(step.kind, step.text) for step in found], [("html", "<!-- browser open x -->")])

    def test_an_open_block_is_an_error(self):
        with self.assertRaises(page.PageError):
            steps_of("```sh\nls\n")


class Outputs(unittest.TestCase):
    def check(self, output, wanted, is_match, varies=False):
        self.assertEqual(page.match_lines(output, wanted, varies) is not None, is_match, (output, wanted))

    def test_lines_are_compared_whole_and_in_order(self):
        self.check("one\ntwo\nthree\n", "one\nthree", True)
        self.check("one\ntwo\n", "two\none", False)
        self.check("one two\n", "one", False)

    def test_dots_are_any_text(self):
        self.check("12:30 INFO ready\n", "… INFO ready", True)
        self.check("a\nb\nc\n", "a\n…\nc", True)

    def test_figures_vary_with_their_units(self):
        self.check("  p99         1.81 s\n", "  p99    35.7 ms", True, varies=True)
        self.check("  p99         1.81 s\n", "  p99    35.7 ms", False)
        self.check("  p99         fast\n", "  p99    35.7 ms", False, varies=True)
        self.check("8, 4958 lost   65535\n", "8, 3 lost            65535", True, varies=True)


class Pages(unittest.TestCase):
    def test_every_page_can_be_read_in_ten_minutes(self):
        for name in run.TUTORIALS:
            path = run.FOLDER / f"{name}.md"
            self.assertLessEqual(page.words(path), page.WORDS, name)
            self.assertGreater(len(page.steps(path)), 10, name)


if __name__ == "__main__":
    unittest.main()
