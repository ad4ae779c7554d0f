"""The reading of pages: steps, and the comparison of outputs. `python3 -m unittest discover -s tests/support`."""

import pathlib
import unittest

import marked_page

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
INSTRUCTIONS = ("browser", "setup")


def steps(text):
    return marked_page.steps("page.md", text, INSTRUCTIONS)


class Steps(unittest.TestCase):
    def test_blocks_and_instructions_are_steps(self):
        found = steps("Text.\n\n```sh terminal=server\nring\n```\n\n<!-- a remark -->\n<!-- browser expect \"#x y\" '\\d' -->\n")
        self.assertEqual([(step.kind, step.words, step.line, step.end) for step in found],
                         [("sh", ["terminal=server"], 3, 5), ("browser", ["expect", "#x y", "\\d"], 8, 8)])
        self.assertEqual((found[0].named["terminal"], found[0].text), ("server", "ring"))
        self.assertEqual([step.is_block for step in found], [True, False])

    def test_an_instruction_with_a_colon_keeps_its_command(self):
        [step] = steps("<!-- setup: printf 'a  b' > \"$HOME/x\"; it's -->\n")
        self.assertEqual((step.kind, step.rest), ("setup", "printf 'a  b' > \"$HOME/x\"; it's"))

    def test_an_instruction_in_a_block_is_text(self):
        found = steps("```html file=a.html\n<!-- browser open x -->\n```\n")
        self.assertEqual([(step.kind, step.text) for step in found], [("html", "<!-- browser open x -->")])

    def test_unknown_comments_are_no_steps(self):
        self.assertEqual(steps("<!-- note: x -->\n<!--\nbrowser open x -->\n"), [])

    def test_words_without_a_value(self):
        [step] = steps("```text  varies terminal=a=b\n```\n")
        self.assertEqual((step.kind, step.words, step.named), ("text", ["varies", "terminal=a=b"], {"varies": "", "terminal": "a=b"}))
        self.assertEqual((step.lines, step.text), ([], ""))

    def test_the_indentation_of_a_block_is_removed(self):
        [step] = steps("1. Run:\n\n   ```sh\n   ls\n     -l\n\n   ```\n")
        self.assertEqual((step.indent, step.lines), ("   ", ["ls", "  -l", ""]))
        self.assertEqual((step.line, step.end), (3, 7))

    def test_a_fence_with_another_indentation_is_text(self):
        [step] = steps("```text\n  ```\n```\n")
        self.assertEqual(step.lines, ["  ```"])

    def test_a_line_of_text_with_a_code_span_opens_no_block(self):
        self.assertEqual(steps("```one``` is code\n"), [])

    def test_an_open_block_is_an_error_with_its_line(self):
        with self.assertRaisesRegex(marked_page.PageError, r"^page\.md:2: the block is not closed$"):
            steps("\n```sh\nls\n")


class Outputs(unittest.TestCase):
    def check(self, output, wanted, is_match, varies=False):
        self.assertEqual(marked_page.match_lines(output, wanted, varies) is not None, is_match, (output, wanted))

    def test_lines_are_compared_whole_and_in_order(self):
        self.check("one\ntwo\nthree\n", "one\nthree", True)
        self.check("one\ntwo\n", "two\none", False)
        self.check("one two\n", "one", False)
        self.check("one  \r\n\ntwo\n", "one\n\ntwo", True)

    def test_the_position_behind_the_last_line_is_returned(self):
        self.assertEqual(marked_page.match_lines("one\ntwo\none\n", "one"), 3)
        self.assertEqual(marked_page.match_lines("one\ntwo\none\n", "two\none"), 11)

    def test_dots_are_any_text(self):
        self.check("12:30 INFO ready\n", "… INFO ready", True)
        self.check("a\nb\nc\n", "a\n…\nc", True)
        self.check("a\n", "a\n…", True)

    def test_figures_vary_with_their_units(self):
        self.check("  p99         1.81 s\n", "  p99    35.7 ms", True, varies=True)
        self.check("  p99         1.81 s\n", "  p99    35.7 ms", False)
        self.check("  p99         fast\n", "  p99    35.7 ms", False, varies=True)
        self.check("8, 4958 lost   65535\n", "8, 3 lost            65535", True, varies=True)


class Pages(unittest.TestCase):
    def test_every_page_of_the_documentation_can_be_read(self):
        pages = sorted(DOCS.rglob("*.md"))
        self.assertGreater(len(pages), 100)
        for path in pages:
            for step in marked_page.steps_of(path, INSTRUCTIONS):
                with self.subTest(page=path.name, line=step.line):
                    self.assertTrue(step.kind, "a block has a language")
                    self.assertIsInstance(step.named, dict)


if __name__ == "__main__":
    unittest.main()
