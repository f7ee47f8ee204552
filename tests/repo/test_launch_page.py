"""What docs/launch.md says to slices of TPUs: as many machines as a topology has, and commands that train."""

import math
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.typed import complaints

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "launch.md").read_text(encoding="utf-8")
CHIPS = 4  # of a machine, by the names of the machines


def machines(topology: str) -> int:
    return math.prod(map(int, topology.split("x"))) // CHIPS


def test_a_managed_instance_group_has_the_machines_of_its_topology() -> None:
    (topology,) = re.findall(r"--accelerator-topology=(\w+)", PAGE)
    (size,) = re.findall(r"instance-groups managed create .*--size=(\d+)", PAGE)
    assert machines(topology) == int(size)
    written = re.findall(r"(\d\S*) of v\S+(?: or TPU7x)?(?: are|) (two|four)", PAGE)
    assert [machines(layout) for layout, _ in written] == [{"two": 2, "four": 4}[count] for _, count in written] != []
    assert all(re.search(rf"{name}-{CHIPS}t`", PAGE) for name in ("ct5p-hightpu", "ct6e-standard", "tpu7x-standard"))


@pytest.mark.slow
def test_the_jobset_has_a_pod_for_each_machine_and_trains(tmp_path: Path) -> None:
    (text,) = (block for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S) if "JobSet" in block)
    (job,) = yaml.safe_load(text)["spec"]["replicatedJobs"]
    slice_ = job["template"]["spec"]
    pod = slice_["template"]["spec"]
    (container,) = pod["containers"]
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    assert slice_["parallelism"] == slice_["completions"] == machines(topology)
    assert container["resources"]["limits"] == {"google.com/tpu": CHIPS}
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    program, command = container["command"]
    (complaint,) = complaints([(command, *container["args"])], tmp_path)
    assert (program, complaint) == ("vaswani", "")
