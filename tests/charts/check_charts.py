#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT
"""Runs docs/make_charts.py on sweep.json beside this file, and on files that it must refuse."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parents[1] / "docs" / "make_charts.py"
FIXTURE = HERE / "sweep.json"
CHARTS = ["sweep_gather.svg", "sweep_logits.svg", "sweep_store.svg"]


class Charts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def draw(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def drawn(self):
        return sorted(path.name for path in self.folder.glob("*.svg"))

    def charts(self):
        done = self.draw(FIXTURE, self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.drawn(), CHARTS)
        return {name: xml.etree.ElementTree.parse(self.folder / name).getroot() for name in CHARTS}

    def shares(self, chart):
        """Shares of bars, goals, peers and bars of overlapped launches by the chart's own axis,
        those of the legend left out."""
        parts = {style: [part for part in chart if part.get("class") == style]
                 for style in ("grid", "bar", "goal", "peer", "overlapped")}
        zero, full = (float(parts["grid"][i].get("x1")) for i in (0, 5))
        bars, overlapped = ([float(bar.get("width")) for bar in parts[style][1:]]
                            for style in ("bar", "overlapped"))
        ticks = [[float(tick.get("x1")) - zero for tick in parts[style][1:]]
                 for style in ("goal", "peer")]
        return [[round(x / (full - zero), 3) for x in marks]
                for marks in (bars, *ticks, overlapped)]

    def test_shares(self):
        charts = self.charts()
        # The last repetition of two, and not their mean.
        self.assertEqual(self.shares(charts["sweep_logits.svg"]), [[0.5], [0.8], [0.625], [0.64]])
        # The wrong one has no bar.
        self.assertEqual(self.shares(charts["sweep_store.svg"]), [[0.5], [], [0.25], []])
        self.assertEqual(self.shares(charts["sweep_gather.svg"]), [[1.1], [0.88], [], []])

    def test_text(self):
        for name, chart in self.charts().items():
            self.assertEqual(chart.tag, "{http://www.w3.org/2000/svg}svg")
            text = "\n".join(chart.itertext())
            self.assertIn("a fixture & <no> GPU, kindex 0.0.0, 2000-01-01.", text)
            self.assertIn("read 4,000 GB/s, copy 2,000 GB/s, write 3,000 GB/s", text)
            self.assertIn("prefers-color-scheme: dark", text)
            self.assertEqual("failed" in text, name == "sweep_store.svg")

    def refused(self, source, words):
        done = self.draw(source, self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(str(source), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.drawn(), [])

    def test_wrong_files(self):
        self.refused(self.folder / "missing.json", "No such file")
        source = self.folder / "wrong.json"
        for content, words in ((b"us  goal  peer\n", "not JSON"),
                               (FIXTURE.read_bytes()[:-20], "not JSON"),
                               (b"\xff\xff", "not JSON"),
                               (b"[1, 2]", "not the JSON output of kindex_sweep"),
                               (b"{}", "not the JSON output of kindex_sweep"),
                               (b'{"context": {}, "benchmarks": []}',
                                "not the JSON output of kindex_sweep")):
            with self.subTest(content=content):
                source.write_bytes(content)
                self.refused(source, words)

    def test_wrong_runs(self):
        whole = json.loads(FIXTURE.read_text(encoding="utf-8"))

        def emulated(run):
            run["context"]["mode"] = "emulated: counts and floors, not times"

        def without_ceiling(run):
            del run["context"]["copy_ceiling_gb_per_s"]

        def without_bytes(run):
            del run["benchmarks"][0]["bytes"]

        def without_time(run):
            run["benchmarks"][0]["real_time"] = 0.0

        def logits_only(run):
            del run["benchmarks"][3:]

        source = self.folder / "wrong.json"
        for change, words in ((emulated, "emulated"),
                              (without_ceiling, "no copy_ceiling_gb_per_s"),
                              (without_bytes, "half: no bytes"),
                              (without_time, "half: real_time is 0"),
                              (logits_only, "no cases of store, gather")):
            with self.subTest(change=change.__name__):
                run = copy.deepcopy(whole)
                change(run)
                source.write_text(json.dumps(run), encoding="utf-8")
                self.refused(source, words)

    def test_arguments(self):
        usage = "docs/make_charts.py build/sweep.json"
        for arguments in ([], ["--wrong"], [FIXTURE, self.folder, "more"]):
            done = self.draw(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(usage, done.stderr)
        done = self.draw("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn(usage, done.stdout)


if __name__ == "__main__":
    unittest.main()
