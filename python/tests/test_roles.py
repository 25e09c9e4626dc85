"""Roles of SMs, configurations of them, and how many a device has."""

import pytest

import maco
from maco.roles import counts, device_sms, roles_of


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    monkeypatch.delenv("MACO_CPU_SMS", raising=False)


def test_ranges_are_half_open_and_become_a_graphs_setting():
    config = maco.SMConfig(total_sms=132)
    config.assign_role((96, 120), maco.Role.REMOTE_SCHEDULER)
    config.assign_role(sm_range=(0, 96), role=maco.Role.COMPUTE, task_types=["matmul", "attention"])
    assert (config.compute_sms, config.comm_sms, config.total_sms) == (96, 24, 132)
    assert config.sm_roles() == [
        {"sms": [0, 96], "role": "compute", "tasks": ["matmul", "attention"]},
        {"sms": [96, 120], "role": "comm"},
    ]
    assert [one[:2] for one in config.roles] == [(0, 96), (96, 120)]


def test_a_local_scheduler_is_warned_of_and_refused_by_name_when_it_is_used():
    config = maco.SMConfig(8)
    config.assign_role((0, 4), maco.Role.COMPUTE)
    with pytest.warns(UserWarning, match="LOCAL_SCHEDULER.*'dynamic'.*refuse"):
        config.assign_role((4, 8), maco.Role.LOCAL_SCHEDULER)
    with pytest.raises(maco.Error, match=r"LOCAL_SCHEDULER.*dynamic.*test_roles.py:\d+"):
        config.sm_roles()


@pytest.mark.parametrize("sms", [(4, 9), (0, 0), (3, 2), (-1, 2), (2, 6)])
def test_ranges_that_are_not_there_or_taken_are_errors(sms):
    config = maco.SMConfig(8)
    config.assign_role((4, 6), "compute")
    with pytest.raises(maco.Error):
        config.assign_role(sms, maco.Role.COMM)
    assert config.comm_sms == 0


def test_misspelt_words_get_suggestions():
    config = maco.SMConfig(8)
    with pytest.raises(maco.Error, match="did you mean 'COMPUTE'"):
        config.assign_role((0, 4), "comptue")
    with pytest.raises(maco.Error, match="did you mean 'matmul'"):
        config.assign_role((0, 4), maco.Role.COMPUTE, ["matmull"])
    with pytest.raises(maco.Error, match="'allreduce' runs on SMs of the role COMM"):
        config.assign_role((0, 4), maco.Role.COMPUTE, ["allreduce"])
    with pytest.raises(maco.Error, match="'matmul' runs on SMs of the role COMPUTE"):
        config.assign_role((0, 4), maco.Role.REMOTE_SCHEDULER, ["matmul"])
    with pytest.raises(maco.Error, match="did you mean 'hopper'"):
        maco.auto_config("high", "low", gpu_arch="hoper")
    with pytest.raises(maco.Error, match="did you mean 'high'"):
        maco.auto_config("hgih", "low")
    for wrong in ("matmul", [3]):
        with pytest.raises(TypeError):
            config.assign_role((0, 4), maco.Role.COMPUTE, wrong)
    for wrong in (7, (1,), (0, 1.5), "0:4"):
        with pytest.raises(TypeError):
            config.assign_role(wrong, maco.Role.COMPUTE)
    with pytest.raises(TypeError):
        config.assign_role((0, 4), 3)
    for wrong in (0, -3):
        with pytest.raises(maco.Error):
            maco.SMConfig(wrong)
    with pytest.raises(TypeError):
        maco.SMConfig("132")


def test_more_communication_gets_more_sms():
    words = ("low", "medium", "high")
    for arch in (None, "cpu", "hopper", "a100", "sm_90a"):
        for compute in words:
            found = [maco.auto_config(compute, comm, arch) for comm in words]
            comm = [one.comm_sms for one in found]
            assert comm == sorted(set(comm)), (arch, compute)
            assert all(one.compute_sms >= 1 and one.compute_sms + one.comm_sms == one.total_sms for one in found)
        for comm in words:
            computes = [maco.auto_config(compute, comm, arch).compute_sms for compute in words]
            assert computes == sorted(computes)
    one = maco.auto_config(compute_intensity="high", comm_intensity="medium", gpu_arch="hopper")
    assert (one.compute_sms, one.comm_sms) == (100, 32)


def test_a_device_of_one_sm_computes(monkeypatch):
    monkeypatch.setenv("MACO_CPU_SMS", "1")
    one = maco.auto_config("low", "high")
    assert (one.compute_sms, one.comm_sms) == (1, 0)


def test_counts_that_do_not_fit_say_what_there_is(monkeypatch):
    names = ("compute_sms", "comm_sms")
    with pytest.raises(maco.Error, match=r"compute_sms=96 and comm_sms=32 needs 128 SMs, but the CPU target has 8; MACO_CPU_SMS=128"):
        counts(96, 32, "cpu", None, names)
    monkeypatch.setenv("MACO_CPU_SMS", "128")
    assert device_sms("cpu") == 128
    assert counts(96, 32, "cpu", None, names) == {"compute": 96, "comm": 32}
    assert counts(None, None, "cpu", None, names) is None
    monkeypatch.setenv("MACO_CPU_SMS", "many")
    with pytest.raises(maco.Error, match="MACO_CPU_SMS"):
        device_sms("cpu")


def test_a_configuration_of_another_device_is_refused():
    config = maco.auto_config("high", "medium", "hopper")
    with pytest.raises(maco.Error, match="132 SMs, but the CPU target has 8"):
        roles_of(config, "cpu")
    with pytest.raises(maco.Error, match="no SM a role"):
        roles_of(maco.SMConfig(8), "cpu")
    with pytest.raises(TypeError):
        roles_of({"compute": 3}, "cpu")


def test_a_configuration_compiles_and_its_sms_are_those_that_work():
    config = maco.SMConfig(8)
    config.assign_role((1, 4), maco.Role.COMPUTE)
    graph = maco.Graph("g")
    graph.output("y", graph.relu(graph.input("x", "f32", [512, 64])))
    graph.set(sm_roles=roles_of(config, "cpu"))
    assert "1..3" in graph.compile(target="cpu").report
