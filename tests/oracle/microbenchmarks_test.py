"""bench/microbenchmarks.py rehearsed on the CPU: every section, with the keys that `tegula plan --microbenchmarks` reads."""

import json
import pathlib
import subprocess
import sys

import pytest

H200 = pathlib.Path("bench/results/microbenchmarks_h200.json")


def rehearse(out, *launcher):
    subprocess.run([sys.executable, *launcher, "bench/microbenchmarks.py", "--dry-run", "--out", str(out)], check=True,
                   capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_rehearsal_has_what_is_read(tmp_path, processes):
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2"] if processes > 1 else []
    written, known = rehearse(tmp_path / "micro.json", *launcher), json.loads(H200.read_text())
    assert written.keys() - {"collectives"} == known.keys() - {"collectives"}
    assert ("collectives" in written) == (processes > 1)
    for section, rows in written.items():
        if not isinstance(rows, list):
            continue
        assert {frozenset(row) for row in rows} == {frozenset(row) for row in known[section]}, section
        assert all(0 < row.get("seconds", row.get("value")) < 60 for row in rows)
    constants = {row["what"] for row in written["constants"]}
    assert {"op", "module", "autocast_module", "recomputed", "parameter", "clock"} <= constants
    assert ("ddp_parameter" in constants) == (processes > 1)
    if processes > 1:
        assert {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"} == {row["op"] for row in written["collectives"]}
