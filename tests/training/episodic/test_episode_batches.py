"""Episodes depend on seed and number only; their labels and images are those of the sampler."""

import pytest
import torch

from infoshot import DataError, InputSpec
from infoshot.core.types import FeatureTable
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.images.augmentation import augment, draw_augmentation
from infoshot.images.in_memory import StoredImages
from infoshot.tasks.sampler import TaskSampler
from infoshot.training import EpisodicConfig
from infoshot.training.batches import AugmentedImages
from infoshot.training.episodic.episode_batches import EpisodeBatches, make_sampler

LABELS = torch.arange(6).repeat_interleave(8).flip(0)
SPEC = InputSpec(crop=8, resize=10)


def _config(**changes):
    settings = {"n_way": 3, "n_shot": 2, "n_query": 3, "episodes_per_epoch": 12, "seed": 4}
    return EpisodicConfig(backbone="conv4", system="protonet", **{**settings, **changes})


def _numbers(episodes, indices):
    """Stand for images: the number of the episode and of the image."""
    return torch.stack((episodes, indices), -1)


def _episodes(config, ranks=SINGLE_PROCESS, epochs=(0,)):
    """Return samples, labels and classes of all episodes, by their number."""
    batches = EpisodeBatches(_numbers, LABELS, config, ranks)
    found = {}
    for epoch in epochs:
        for batch in batches.epoch(epoch):
            parts = (batch.samples, batch.y_sup, batch.y_qry, batch.classes)
            for samples, *rest in zip(*parts, strict=True):
                assert (samples[:, 0] == samples[0, 0]).all()
                found[int(samples[0, 0])] = torch.cat((samples[:, 1], *rest)).tolist()
    return found


def test_episodes_depend_on_seed_and_number_only():
    whole = _episodes(_config())
    assert sorted(whole) == list(range(12))
    for tasks_per_step in (2, 3, 12):
        assert _episodes(_config(tasks_per_step=tasks_per_step)) == whole
    # Two epochs of six are one of twelve, and the second can be drawn without the first.
    halves = _config(episodes_per_epoch=6, tasks_per_step=2)
    assert _episodes(halves, epochs=(0, 1)) == whole
    assert _episodes(halves, epochs=(1,)) == {n: whole[n] for n in range(6, 12)}
    assert _episodes(_config(seed=5)) != whole


def test_processes_share_the_tasks_of_every_step():
    config = _config(tasks_per_step=4)
    parts = [_episodes(config, Ranks(rank, 2)) for rank in range(2)]
    assert not parts[0].keys() & parts[1].keys()
    assert parts[0] | parts[1] == _episodes(config)
    assert sorted(parts[0]) == [0, 2, 4, 6, 8, 10]


def test_episodes_are_the_tasks_of_the_sampler():
    config = _config()
    sampler = TaskSampler(FeatureTable(torch.empty(48, 1), LABELS), config.task_spec())
    for number, content in _episodes(config).items():
        support, query = (part[0] for part in sampler.draw(range(number, number + 1)))
        y_sup, y_qry = (part[0] for part in sampler.labels(range(number, number + 1)))
        classes = content[-3:]
        assert content[:-3] == torch.cat((support, query, y_sup, y_qry)).tolist()
        assert len(set(support.tolist()) | set(query.tolist())) == 15
        assert [classes[label] for label in y_sup] == LABELS[support].tolist()
        assert [classes[label] for label in y_qry] == LABELS[query].tolist()


def test_last_incomplete_step_is_left_out():
    assert sorted(_episodes(_config(tasks_per_step=5), epochs=(0, 1))) == list(range(20))
    assert sorted(_episodes(_config(tasks_per_step=13))) == list(range(13))  # at least one step


def test_images_are_augmented_by_seed_episode_and_number():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (48, 3, 12, 12), generator=generator).byte()
    stored = StoredImages(pixels, torch.full((48, 2), 12))
    config = _config(tasks_per_step=4, jitter=0.2)
    images = AugmentedImages(stored, SPEC, config, "cpu")
    batches = EpisodeBatches(images, LABELS, config, SINGLE_PROCESS)
    sampler = make_sampler(LABELS, config.task_spec())
    for step, batch in enumerate(batches.epoch(0)):
        for place in range(4):
            number = 4 * step + place
            drawn = sampler.draw(range(number, number + 1))
            for sample, index in zip(batch.samples[place], torch.cat(drawn, 1)[0], strict=True):
                one = index.view(1)
                what = draw_augmentation(4, number, one, stored.sizes[one], jitter=0.2)
                alone = SPEC.normalise(augment(pixels[one], what, 8))[0]
                torch.testing.assert_close(sample, alone)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_way": 7}, "from the split 'train': n_way must be at most 6, the number of classes"),
        ({"n_query": 7}, r"n_shot \+ n_query must be at most 8 for class '.' .*got 2 \+ 7"),
    ],
)
def test_too_few_classes_or_images_are_one_sentence(changes, message):
    with pytest.raises(DataError, match=message):
        EpisodeBatches(_numbers, LABELS, _config(**changes), SINGLE_PROCESS)
