from infoshot.core.environment import environment


def test_environment_says_what_a_time_depends_on():
    assert {"torch", "python", "processor", "cores", "torch_threads"} <= set(environment())
