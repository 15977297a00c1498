"""Every command line and every configuration in the manifests is one that our own binaries take."""

import re
import subprocess
from pathlib import PurePosixPath

import pytest
import yaml

from tests.e2e.cluster import binary
from tests.k8s.manifests import DEPLOYABLE, ROLES, config, config_text, pools

FIELDS = {"metadata.name": "tandem-pod-0", "status.podIP": "10.0.0.7"}  # what the API server fills in


def command_line(name, pool, folder):
    """The container's command with variables expanded, the binary and the file of this machine in place."""
    values = {e["name"]: FIELDS[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in pool.container["env"]}
    file_name, text = config_text(name, pool)
    (folder / file_name).write_text(text)
    (program,) = pool.container["command"]
    service = PurePosixPath(program).name
    arguments = []
    for argument in pool.container["args"]:
        argument = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], argument)
        if argument.startswith("--config="):
            path = PurePosixPath(argument.removeprefix("--config="))
            (mount,) = [m for m in pool.container["volumeMounts"] if m["name"] == "config"]
            assert path.parent == PurePosixPath(mount["mountPath"]) and path.name == file_name
            argument = f"--config={folder / file_name}"
        arguments.append(argument)
    return [binary(f"{service}/{service}"), *arguments]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", DEPLOYABLE)
def test_the_binary_takes_its_command_line_and_configuration(name, role, tmp_path):
    pool = pools(name)[role]
    command = command_line(name, pool, tmp_path)
    assert command[0].name == {"router": "router"}.get(role, f"{role}_worker")
    checked = subprocess.run([*command, "--validate_only"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    printed = subprocess.run([*command, "--print_config"], capture_output=True, text=True, timeout=60)
    in_force = yaml.safe_load(printed.stdout)
    assert in_force["process"]["instance"] == FIELDS["metadata.name"], "each pod a name of its own"
    if role == "prefill":
        assert in_force["process"]["advertise_host"] == FIELDS["status.podIP"]


@pytest.mark.parametrize("role", ROLES)
def test_a_setting_that_no_binary_knows_is_refused_in_one_line(role, tmp_path):
    """That the test above can fail."""
    command = command_line("statefulset", pools("statefulset")[role], tmp_path)
    checked = subprocess.run(
        [*command, "--set=process.tensor_parallel=8", "--validate_only"], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 2 and checked.stderr.count("\n") == 1
    assert "process.tensor_parallel" in checked.stderr


@pytest.mark.parametrize("name", DEPLOYABLE)
def test_every_side_serves_the_same_checkpoint_from_a_place_that_is_mounted_or_in_the_image(name):
    by_role = pools(name)
    (path,) = {config(name, pool)["cluster"]["model_path"] for pool in by_role.values()}
    for pool in by_role.values():
        mounts = [m["mountPath"] for m in pool.container["volumeMounts"] if m["name"] == "model"]
        assert [path.startswith(mount + "/") for mount in mounts] == [True] or path.startswith("/opt/tandem/checkpoints/")
