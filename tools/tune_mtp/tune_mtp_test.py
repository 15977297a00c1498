"""What tune_mtp recommends of measured rates, and which command lines it refuses."""

import pytest

from tools.tune_mtp import tune_mtp


def test_the_fastest_of_each_concurrency_and_a_compromise():
    rates = {1: {0: 100, 1: 150, 3: 240}, 8: {0: 400, 1: 390, 3: 300}}
    assert tune_mtp.recommend(rates) == ({1: 3, 8: 0}, 3)
    rates[8][3] = 100
    assert tune_mtp.recommend(rates) == ({1: 3, 8: 0}, 1)


def test_of_equal_ones_the_smaller():
    assert tune_mtp.recommend({4: {3: 10, 1: 10, 0: 10}}) == ({4: 0}, 0)


def test_settings_name_their_service():
    arguments = tune_mtp.parse(["--bin=b", "--model=m", "--steps=0,3", "--set=decode_worker:process.device=cuda:0"])
    assert arguments.steps == [0, 3]
    for wrong in ("process.device=cpu", "worker:process.device=cpu", "router:process.port"):
        with pytest.raises(SystemExit):
            tune_mtp.parse(["--bin=b", "--model=m", f"--set={wrong}"])
