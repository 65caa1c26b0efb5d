"""tests/summary.py, on reports of both runners."""

import subprocess
import sys
from pathlib import Path

PYTEST = """<testsuites><testsuite>
<testcase classname="kubernetes.test_jobs" name="test_a" time="70.4"/>
<testcase classname="kubernetes.test_jobs" name="test_b" time="1.0"><failure/></testcase>
<testcase classname="cluster.test_ssh.TestThem" name="test_c" time="80"><skipped/></testcase>
<testcase classname="test_scaling" name="test_d" time="2.6"/>
</testsuite></testsuites>"""
CTEST = '<testsuite><testcase classname="base.Env.Reads" name="base.Env.Reads" time="5"/></testsuite>'


def summary(tmp_path, *reports: str) -> subprocess.CompletedProcess:
    paths = []
    for index, text in enumerate(reports):
        paths.append(tmp_path / f"{index}.xml")
        paths[-1].write_text(text)
    return subprocess.run([sys.executable, Path(__file__).with_name("summary.py"), *paths], capture_output=True, text=True)


def test_counts_failures_and_the_seconds_of_folders(tmp_path):
    done = summary(tmp_path, CTEST, PYTEST)
    assert done.stdout.splitlines() == [
        "failed: kubernetes.test_jobs.test_b",
        "seconds: tests/cluster 80, tests/kubernetes 71, tests 3",
        "3 passed, 1 failed, 1 skipped",
    ]
    assert done.returncode == 1


def test_what_is_good_is_good_and_what_is_missing_is_not(tmp_path):
    assert summary(tmp_path, CTEST).stdout == "1 passed, 0 failed, 0 skipped\n" and summary(tmp_path, CTEST).returncode == 0
    assert summary(tmp_path, CTEST, "<testsuite>").returncode == 1
