from infoshot.core.environment import environment


def test_environment_records_what_times_depend_on():
    assert {"torch", "python", "processor", "cores", "torch_threads"} <= set(environment())
