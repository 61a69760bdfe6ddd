#!/usr/bin/env python3
"""tegula pet: where programs differ, by few positions, and their correction."""

import json
import unittest

from case import INPUT, CliTest

# Two images beside one another, as the lectures have it: the seam of the result is wrong.
SEAM = """rule seam
sizes c co h w
inputs x[1,c,h,w] y[1,c,h,w] a[co,c,3,3]
left concat(conv(x,a,lo=[1,1],hi=[1,1]), conv(y,a,lo=[1,1],hi=[1,1]), dim=3)
right conv(concat(x,y,dim=3),a,lo=[1,1],hi=[1,1])
"""


class Pet(CliTest):
    def of(self, *arguments):
        return json.loads(self.expect_ok(self.run_tool(*arguments)).stdout.splitlines()[-1])

    def rule(self, text):
        path = self.dir / "r.rules"
        path.write_text(text)
        return path

    def test_the_seam_of_two_images(self):
        path, out = self.rule(SEAM), self.dir / "corrected.rules"
        tested = []
        for w in (5, 8, 40):
            got = self.of("pet", path, "--sizes", f"c=3,co=4,h=6,w={w}", "--json", "--correct", out)
            self.assertEqual(got["boxes"], [{"lo": [0, 0, 0, w - 1], "hi": [1, 4, 6, w + 1]}])
            self.assertLess(got["multiply_adds_of_correction"] / got["multiply_adds"], 1.5 / w)
            tested.append(got["positions_tested"])
        self.assertEqual(len(set(tested)), 1, tested)
        again = self.of("pet", out, "--json")
        self.assertEqual(again["boxes"], [])

    def test_what_is_right_has_no_boxes(self):
        text = SEAM.replace("dim=3", "dim=0").replace("seam", "batch")
        self.assertEqual(self.of("pet", self.rule(text), "--sizes", "c=2,co=2,h=4,w=4", "--json")["boxes"], [])

    def test_bad_input(self):
        path = self.rule(SEAM)
        self.expect_error(self.run_tool("pet", path), INPUT, "give c a size", "--sizes c=4")
        self.expect_error(self.run_tool("pet", path, "--sizes", "c"), INPUT, "NAME=NUMBER")
        self.expect_error(self.run_tool("pet", self.dir / "none"), INPUT, "none")
        text = "rule r\nsizes n\ninputs x[n] y[n]\nleft max(x, y)\nright max(y, x)\n"
        self.expect_error(self.run_tool("pet", self.rule(text), "--sizes", "n=4"), INPUT, "no sum of products")


    def test_sizes_of_no_rule_are_refused(self):
        path = self.dir / "seam.rules"
        path.write_text(SEAM)
        self.expect_error(self.run_tool("pet", path, "--sizes", "c=1,co=1,h=2,w=2,zz=3"), INPUT, "zz=3")


if __name__ == "__main__":
    unittest.main()
