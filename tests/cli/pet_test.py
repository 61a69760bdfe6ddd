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

    def generated(self, left, sizes):
        """The programs that are found for a left side alone, and their corrections' boxes."""
        out = self.dir / "found.rules"
        got = self.of("pet", self.rule(left), "--generate", "--sizes", sizes, "--json", "--correct", out)
        corrected = self.of("pet", out, "--json")
        for rule in corrected.get("rules", [corrected]):
            self.assertEqual(rule["boxes"], [], rule["rule"])
        self.assertEqual(len(corrected.get("rules", [corrected])), len(got["rules"]))
        self.assertGreater(got["programs"], 10)
        return {rule["right"]: rule for rule in got["rules"]}

    def test_the_seam_is_found(self):
        got = self.generated(SEAM[:SEAM.index("right")], "c=3,co=4,h=6,w=8")
        seam = got["conv(concat(x, y, dim=3), a, hi=[1,1], lo=[1,1])"]
        self.assertEqual(seam["boxes"], [{"lo": [0, 0, 0, 7], "hi": [1, 4, 6, 9]}])

    def test_a_batch_as_space_is_found(self):
        left = "rule batch\nsizes n c co h w\ninputs x[n,c,h,w] a[co,c,3,3]\nleft conv(x,a,lo=[1,1],hi=[1,1])\n"
        tested = []
        for w in (8, 20):
            got = self.generated(left, f"n=4,c=3,co=4,h=6,w={w}")
            beside = got["permute(reshape(conv(reshape(permute(x, order=[1,2,0,3]), shape=[1,c,h,n*w]), a, hi=[1,1], lo=[1,1]), "
                         "shape=[co,h,n,w]), order=[2,0,1,3])"]
            # The last column of all images but the last, the first of all but the first.
            self.assertEqual(sorted(map(str, beside["boxes"])), sorted(map(str, (
                {"lo": [0, 0, 0, w - 1], "hi": [3, 4, 6, w]}, {"lo": [1, 0, 0, 0], "hi": [4, 4, 6, 1]}))))
            self.assertEqual(beside["share_of_boxes"], beside["share_of_correction"])
            tested.append(beside["positions_tested"])
            self.assertTrue(any("shape=[1,c,h*n,w]" in right for right in got), got)  # above one another
        self.assertEqual(len(set(tested)), 1, tested)

    def test_rows_as_one_row_are_found(self):
        left = "rule rows\nsizes n c co h w\ninputs x[n,c,h,w] a[co,c,1,3]\nleft conv(x,a,lo=[0,1],hi=[0,1])\n"
        got = self.generated(left, "n=2,c=3,co=4,h=6,w=8")
        row = got["reshape(conv(reshape(x, shape=[n,c,1,h*w]), a, hi=[0,1], lo=[0,1]), shape=[n,co,h,w])"]
        self.assertEqual(sorted(map(str, row["boxes"])), sorted(map(str, (
            {"lo": [0, 0, 0, 7], "hi": [2, 4, 5, 8]}, {"lo": [0, 0, 1, 0], "hi": [2, 4, 6, 1]}))))

    def test_the_work_of_a_correction_is_the_share_of_its_boxes(self):
        for w in (6, 20):
            got = self.of("pet", self.rule(SEAM), "--sizes", f"c=3,co=4,h=6,w={w}", "--json")
            self.assertEqual(got["share_of_boxes"], 2 / (2 * w))
            self.assertEqual(got["share_of_correction"], got["share_of_boxes"])
        # Of two layers the boxes need a halo of the first one: four wrong columns are made of six and of four.
        twice = SEAM.replace("a[co,c,3,3]", "a[co,c,3,3] b[co,co,3,3]")
        for image in ("x,", "y,", "concat(x,y,dim=3),"):
            twice = twice.replace(f"conv({image}a,lo=[1,1],hi=[1,1])", f"conv(conv({image}a,lo=[1,1],hi=[1,1]),b,lo=[1,1],hi=[1,1])")
        got = self.of("pet", self.rule(twice), "--sizes", "c=4,co=4,h=6,w=20", "--json")
        self.assertEqual(got["boxes"], [{"lo": [0, 0, 0, 18], "hi": [1, 4, 6, 22]}])
        self.assertAlmostEqual(got["share_of_correction"], got["share_of_boxes"] * (6 + 4) / (4 + 4))

    def test_the_seam_of_convolutions_in_groups(self):
        text = SEAM.replace("[1,c,h,w]", "[1,2*c,h,w]").replace("a[co,", "a[2*co,").replace("hi=[1,1]", "hi=[1,1],groups=2")
        out = self.dir / "corrected.rules"
        got = self.of("pet", self.rule(text), "--sizes", "c=2,co=2,h=5,w=8", "--json", "--correct", out)
        self.assertEqual(got["boxes"], [{"lo": [0, 0, 0, 7], "hi": [1, 4, 5, 9]}])
        self.assertEqual(got["share_of_correction"], got["share_of_boxes"])
        self.assertEqual(self.of("pet", out, "--json")["boxes"], [])

    def test_a_corrected_program_runs(self):
        graph = self.dir / "seam.tg"
        self.of("pet", self.rule(SEAM), "--sizes", "c=8,co=8,h=16,w=16", "--json", "--graph", graph)
        got = self.of("bench", "graph", graph, "--json", "--threads", 1, "--repeats", 1)
        self.assertGreater(got["ms"], 0)
        self.expect_error(self.run_tool("pet", self.rule(SEAM + SEAM.replace("seam", "two")), "--sizes", "c=1,co=1,h=2,w=2",
                                        "--graph", graph), INPUT, "--graph")

    def test_bad_input(self):
        path = self.rule(SEAM)
        self.expect_error(self.run_tool("pet", path), INPUT, "give c a size", "--sizes c=4")
        self.expect_error(self.run_tool("pet", path, "--sizes", "c"), INPUT, "NAME=NUMBER")
        self.expect_error(self.run_tool("pet", self.dir / "none"), INPUT, "none")
        self.expect_error(self.run_tool("pet", path, "--generate", "--sizes", "c=3,co=4,h=6,w=8"), INPUT, "leave it out")
        text = "rule r\nsizes n\ninputs x[n] y[n]\nleft max(x, y)\nright max(y, x)\n"
        self.expect_error(self.run_tool("pet", self.rule(text), "--sizes", "n=4"), INPUT, "no sum of products")


    def test_sizes_of_no_rule_are_refused(self):
        path = self.dir / "seam.rules"
        path.write_text(SEAM)
        self.expect_error(self.run_tool("pet", path, "--sizes", "c=1,co=1,h=2,w=2,zz=3"), INPUT, "zz=3")


if __name__ == "__main__":
    unittest.main()
