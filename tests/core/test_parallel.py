import threading
import time

import pytest
import torch

from infoshot.core.parallel import map_blocks, map_chunks


def in_one_chunk(work, n_threads):
    """Result of ``work`` as the only chunk, which may share its blocks."""
    (result,) = map_chunks(lambda _: work(), [None], n_threads, by_blocks=True)
    return result


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_are_in_the_order_of_the_blocks(n_threads):
    def slower_first(block):
        time.sleep(0.002 * (7 - block))
        return block**2

    expected = [block**2 for block in range(7)]
    assert in_one_chunk(lambda: map_blocks(slower_first, range(7)), n_threads) == expected


def test_threads_share_the_blocks_and_use_one_core_each():
    both = threading.Barrier(2)

    def work(block):
        both.wait(timeout=60)
        return threading.get_ident(), torch.get_num_threads(), torch.is_inference_mode_enabled()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            found = in_one_chunk(lambda: map_blocks(work, range(2)), 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert len({thread for thread, _, _ in found}) == 2
    assert threading.get_ident() in {thread for thread, _, _ in found}
    assert {n for _, n, _ in found} == {1}
    assert all(inference for _, _, inference in found)


def test_blocks_of_blocks_stay_in_their_thread():
    def outer(block):
        threads = map_blocks(lambda _: threading.get_ident(), range(3))
        return set(threads) == {threading.get_ident()}

    assert in_one_chunk(lambda: map_blocks(outer, range(4)), 2) == [True] * 4


def test_without_a_chunk_the_calling_thread_processes_the_blocks():
    assert set(map_blocks(lambda _: threading.get_ident(), range(3))) == {threading.get_ident()}


@pytest.mark.parametrize("where", ["calling", "helping"])
def test_an_error_reaches_the_caller_and_stops_the_others(where):
    calling, both, done = threading.get_ident(), threading.Barrier(2), []

    def work(block):
        if block < 2:
            both.wait(timeout=60)
            if (threading.get_ident() == calling) == (where == "calling"):
                raise KeyError("in a block")
        time.sleep(0.001)
        done.append(block)

    with pytest.raises(KeyError, match="in a block"):
        in_one_chunk(lambda: map_blocks(work, range(1000)), 2)
    n_done = len(done)
    assert n_done < 500
    time.sleep(0.01)
    assert len(done) == n_done
