"""The pages of the tutorials. `python3 -m unittest discover -s tests/tutorials`."""

import unittest

import run
from reader import INSTRUCTIONS, marked_page


class Pages(unittest.TestCase):
    def test_every_page_can_be_read_in_ten_minutes(self):
        for name in run.TUTORIALS:
            path = run.FOLDER / f"{name}.md"
            self.assertLessEqual(marked_page.words(path), marked_page.WORDS, name)
            self.assertGreater(len(marked_page.steps_of(path, INSTRUCTIONS)), 10, name)


if __name__ == "__main__":
    unittest.main()
